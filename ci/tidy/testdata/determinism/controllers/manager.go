package controllers

import "time"

func run() { time.Sleep(time.Second) }
