package search

func play() { go play() }
