package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestNetworkOfItsOwn: two programs that have fixed the same port, which somebody else has as well,
// run side by side, of an image and as they are. Each is reached at that port, reaches what it is
// to reach, and nothing else.
func TestNetworkOfItsOwn(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	fixed := taken.Addr().String()
	server := func(says string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, says) }))
		t.Cleanup(s.Close)
		return s
	}
	reached, other := server("the gate"), server("somebody else")

	program, data := built(t, "answerer")
	image, err := mutate.AppendLayers(empty.Image, layer(t, tar.Header{Typeflag: tar.TypeReg, Name: "answerer", Mode: 0o755, Linkname: data}))
	if err == nil {
		image, err = mutate.Config(image, v1.Config{Entrypoint: []string{"/answerer"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	opened, err := (&Store{Dir: t.TempDir(), Say: t.Logf}).Open(t.Context(), saved(t, image))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()

	args := []string{fixed, reached.URL, other.URL}
	contained, err := opened.Run(Life{Args: args, Own: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	plain := exec.Command(program, args...)
	plain.Env = []string{"MARK=of-the-keeper"}
	for name, cmd := range map[string]*exec.Cmd{"plain": plain, "of an image": contained} {
		network, err := NewNetwork(reached.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := network.Enter(cmd); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		start(t, cmd)
		network.Serve()
		client := http.Client{Transport: &http.Transport{DialContext: network.DialContext}}
		var answer []byte
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var response *http.Response
			if response, err = client.Get("http://" + fixed); err == nil {
				answer, err = io.ReadAll(response.Body)
				response.Body.Close()
				break
			}
		}
		if want := "the gate, <nil>, and elsewhere false, as "; err != nil || !strings.HasPrefix(string(answer), want) {
			t.Errorf("%s: it answers %q, %v, want %q", name, answer, err, want)
		}
		if want := fmt.Sprint(" as ", os.Getuid()); cmd == plain && !strings.HasSuffix(string(answer), want) {
			t.Errorf("%s: it answers %q, want it to run%s", name, answer, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		network.Close()
		if said.Len() > 0 {
			t.Errorf("%s: it says\n%s", name, said.String())
		}
		if _, err := network.DialContext(t.Context(), "tcp", fixed); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: its network outlives it: %v", name, err)
		}
	}
}

// start starts a command in a network of its own, if there can be one here.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	switch err := cmd.Start(); {
	case errors.Is(err, os.ErrPermission):
		t.Skipf("this machine allows no networks of one's own: %v", err)
	case err != nil:
		t.Fatal(err)
	}
}

// TestNoNetwork: if a program never gets as far as its network, that is reported, and no caller
// hangs.
func TestNoNetwork(t *testing.T) {
	network, err := NewNetwork("127.0.0.1:40001", "127.0.0.1:40001")
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	cmd := exec.Command("/bin/true")
	if err := network.Enter(cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	start(t, cmd)
	network.Serve()
	_, dialErr := network.DialContext(ctx, "tcp", "127.0.0.1:2")
	if err := cmd.Wait(); err == nil || dialErr == nil || !strings.Contains(dialErr.Error(), "listen at 127.0.0.1:40001: address already in use") {
		t.Errorf("it ends with %v, and is reached with %v", err, dialErr)
	}
}
