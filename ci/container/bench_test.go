package container

import (
	"os/exec"
	"testing"
)

// BenchmarkStart runs a program that says who it is and ends: as a command, from an image whose files are unpacked already, and
// from one that is opened and unpacked first. The difference is what an image adds to each start of a controller.
func BenchmarkStart(b *testing.B) {
	image := testImage(b)
	file := saved(b, image)
	store := &Store{Dir: b.TempDir(), Say: b.Logf}
	ready, err := store.Open(b.Context(), file)
	if err != nil {
		b.Fatal(err)
	}
	live := func(b *testing.B, i *Image) {
		cmd, err := i.Run(Life{Command: []string{"/app/witness", "other"}, Env: []string{"GIVEN=/", "READONLY=/"}, Own: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	b.Run("command", func(b *testing.B) {
		program := ready.root + "/app/witness"
		for b.Loop() {
			cmd := exec.Command(program, "other")
			cmd.Env = []string{"GIVEN=/", "READONLY=/"}
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}
	})
	b.Run("image", func(b *testing.B) {
		for b.Loop() {
			live(b, ready)
		}
	})
	b.Run("opened-first", func(b *testing.B) {
		for b.Loop() {
			store := &Store{Dir: b.TempDir(), Say: b.Logf}
			i, err := store.Open(b.Context(), file)
			if err != nil {
				b.Fatal(err)
			}
			live(b, i)
		}
	})
}
