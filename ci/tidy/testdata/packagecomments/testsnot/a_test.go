package testsnot
