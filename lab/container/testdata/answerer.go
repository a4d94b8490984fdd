// Command answerer serves what another server says, at a port that is fixed in it.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		var said []byte
		answer, err := http.Get(os.Args[2])
		if err == nil {
			said, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		_, elsewhere := http.Get(os.Args[3])
		fmt.Fprintf(w, "%s, %v, and elsewhere %t, as %d", said, err, elsewhere == nil, os.Getuid())
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
