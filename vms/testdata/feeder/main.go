// Command feeder is a program for a guest: it feeds the watchdog as often as its
// configuration says.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	every, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	device, err := os.OpenFile("/dev/watchdog0", os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	fmt.Println("the feeder feeds every", every)
	if _, err := os.NewFile(3, "ready").Write([]byte{0}); err != nil {
		panic(err)
	}
	for ; ; time.Sleep(every) {
		if _, err := device.Write([]byte{0}); err != nil {
			panic(err)
		}
	}
}
