package cmd

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencelab/fencelab/cmd/store/storetest"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// TestStored: a file that was stored is there for the next one, who keeps what he has more of; a
// process that has to stop stores its file all the same, and one whose store fails says so.
func TestStored(t *testing.T) {
	s := &storetest.Store{Bucket: "nights"}
	for name, value := range s.Start(t) {
		t.Setenv(name, value)
	}
	here, there := stored{place: "s3://nights/a"}, stored{place: "s3://nights/a"}
	for _, one := range []*stored{&here, &there} {
		if err := one.open(); err != nil {
			t.Fatal(err)
		}
	}
	mine, yours := filepath.Join(t.TempDir(), "x.blob"), filepath.Join(t.TempDir(), "sub", "x.blob")
	if err := here.fetch(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(mine, "one\ntwo\n")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := here.keep(stopped, mine); err != nil {
		t.Fatal(err)
	}
	for want, had := range map[string]string{"one\ntwo\n": "", "one\ntwo\nthree\n": "one\ntwo\nthree\n"} {
		if had != "" {
			write(yours, had)
		}
		if err := there.fetch(t.Context(), yours); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(yours); string(got) != want {
			t.Errorf("it goes on from %q, want %q", got, want)
		}
		_ = os.Remove(yours)
	}
	if !here.due() || here.due() {
		t.Error("it doesn't store at once, or twice")
	}
	if here.kept = here.kept.Add(-keptEvery); !here.due() {
		t.Error("it doesn't store again")
	}
	write(mine+secondsBeside, "1.5\n")
	if err := here.keep(t.Context(), mine+secondsBeside); err != nil {
		t.Fatal(err)
	}
	blobs, err := blobsIn(t.Context(), []string{"s3://nights/a", filepath.Dir(mine)})
	if err != nil || len(blobs) != 2 || blobs[0].name != "s3://nights/a/x.blob" || blobs[0].seconds != 1.5 || blobs[1].seconds != 1.5 {
		t.Fatalf("there are the blobs %+v (%v)", blobs, err)
	}
	for _, blob := range blobs {
		f, err := blob.open()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || !bytes.Equal(text, []byte("one\ntwo\n")) {
			t.Errorf("%s has %q (%v)", blob.name, text, err)
		}
		_ = f.Close()
	}
	s.Fail = func(*http.Request) int { return http.StatusForbidden }
	if err := here.keep(t.Context(), mine); exit.Code(err) != exit.Environment {
		t.Errorf("a store that refuses: %v", err)
	}
	if _, err := blobsIn(t.Context(), []string{"s3://nights/b"}); err == nil {
		t.Error("what can't be listed is empty")
	}
	var none stored
	if err := none.keep(t.Context(), "nowhere"); err != nil || none.due() || none.fetch(t.Context(), "nowhere") != nil {
		t.Errorf("without a store: %v", err)
	}
}
