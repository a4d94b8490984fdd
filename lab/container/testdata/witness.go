// Command witness prints what it sees from within a container.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	dir, err := os.Getwd()
	fmt.Printf("pid %d\ndir %s %v\nuid %d\nFROM=%s SELF=%s\n", os.Getpid(), dir, err, os.Getuid(), os.Getenv("FROM"), os.Getenv("SELF"))
	fmt.Printf("words: %s\nrole: %q\n", strings.Join(os.Args[1:], " "), os.Getenv("FENCELAB_CONTAINER"))
	entries, err := os.ReadDir("/app")
	fmt.Print("app:")
	for _, e := range entries {
		fmt.Print(" ", e.Name())
	}
	fmt.Printf("; %v\n", err)
	given := os.Getenv("GIVEN")
	question, err := os.ReadFile(filepath.Join(given, "question"))
	fmt.Printf("question: %s %v\n", question, err)
	told, err := os.ReadFile("/var/run/secrets/told")
	fmt.Printf("told: %s %v\n", told, err)
	fmt.Printf("write to app: %v\n", os.WriteFile("/app/written", nil, 0o600))
	fmt.Printf("write to given: %v\n", os.WriteFile(filepath.Join(given, "answer"), []byte(os.Getenv("SELF")), 0o600))
	fmt.Printf("write to what is read-only: %v\n", os.WriteFile(filepath.Join(os.Getenv("READONLY"), "answer"), nil, 0o600))
	processes, _ := filepath.Glob("/proc/[0-9]*")
	fmt.Printf("processes: %d\n", len(processes))
	null, err := os.ReadFile("/dev/null")
	fmt.Printf("null: %d %v\n", len(null), err)
}
