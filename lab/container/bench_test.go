package container

import (
	"os/exec"
	"testing"
)

// BenchmarkStart runs a program that says who it is and ends: as a command, as one with a network
// of its own, from an image whose files are unpacked already, and from one that is opened and
// unpacked first. The differences are the costs of these for each start of a controller.
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
	command := func() *exec.Cmd {
		cmd := exec.Command(ready.root+"/app/witness", "other")
		cmd.Env = []string{"GIVEN=/", "READONLY=/"}
		return cmd
	}
	b.Run("command", func(b *testing.B) {
		for b.Loop() {
			if out, err := command().CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}
	})
	b.Run("command-in-its-own-network", func(b *testing.B) {
		for b.Loop() {
			network, err := NewNetwork("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4")
			if err != nil {
				b.Fatal(err)
			}
			cmd := command()
			if err := network.Enter(cmd); err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			network.Serve()
			if err := cmd.Wait(); err != nil {
				b.Fatal(err)
			}
			network.Close()
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
