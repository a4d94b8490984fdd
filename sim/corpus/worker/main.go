// Command worker plays schedules for the corpus, with the controllers that it was built
// with.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencelab/fencelab/sim/search/workers"
)

func main() {
	if err := workers.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1)
	}
}
