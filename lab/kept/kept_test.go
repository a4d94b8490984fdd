package kept

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLabThatDiesWhileItIsAsked: who kills a lab's process and asks at once how the lab is reaches
// a process that is about to end.
func TestLabThatDiesWhileItIsAsked(t *testing.T) {
	for name, reads := range map[string]bool{"before it has read the question": false, "before it answers": true} {
		t.Run(name, func(t *testing.T) {
			lab := Lab{Name: "a", Dir: filepath.Join(t.TempDir(), "lab")}
			if err := os.Mkdir(lab.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			l, err := listen(lab.Dir)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if reads {
					_, _ = bufio.NewReader(conn).ReadString('\n')
				}
				conn.Close()
				l.Close()
			}()
			if _, err := lab.Status(t.Context()); !errors.Is(err, ErrEnded) {
				t.Errorf("asked how it is: %v", err)
			}
		})
	}
}

// TestMade: a lab reports the parts that it has, and not those that were asked for.
func TestMade(t *testing.T) {
	job := Job{Parts: map[string]string{"controllers": "none", "cluster": "embedded", "hosts": "node", "power": "redfish"}}
	if got, want := job.made(), "controllers none, cluster standard, hosts node, power redfish"; got != want {
		t.Errorf("made of %s, want %s", got, want)
	}
}
