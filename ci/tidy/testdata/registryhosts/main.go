package main

const proxy = "https://proxy.example.org"
