package store_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/cmd/store"
	"github.com/fencelab/fencelab/cmd/store/storetest"
)

// TestBucket: what was put is there, by names that need escaping, too, and lists have more than one
// page; what fails for a while is tried again, and what is refused is said with who refuses it.
func TestBucket(t *testing.T) {
	s := &storetest.Store{Bucket: "blobs", Page: 3}
	environment := s.Start(t)
	open := func(place string) (*store.Bucket, error) {
		return store.Open(place, func(name string) string { return environment[name] })
	}
	b, err := open("s3://blobs/a night/1/")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("x+%d of 7.blob", i))
		if err := b.Put(t.Context(), names[i], []byte(names[i])); err != nil {
			t.Fatal(err)
		}
	}
	other, err := open("s3://blobs")
	if err == nil {
		err = other.Put(t.Context(), "elsewhere", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.List(t.Context()); err != nil || !slices.Equal(got, names) {
		t.Errorf("it lists %q (%v)", got, err)
	}
	if got, err := other.List(t.Context()); err != nil || len(got) != 9 || got[0] != "a night/1/"+names[0] {
		t.Errorf("the whole bucket has %q (%v)", got, err)
	}
	get := func(name string) (string, error) {
		r, err := b.Get(t.Context(), name)
		if err != nil {
			return "", err
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		return string(data), err
	}
	if got, err := get(names[3]); err != nil || got != names[3] {
		t.Errorf("it has %q (%v)", got, err)
	}
	if _, err := get("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what isn't there: %v", err)
	}
	failing := 2
	s.Fail = func(*http.Request) int {
		if failing--; failing >= 0 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	if got, err := get(names[0]); err != nil || got != names[0] || failing >= 0 {
		t.Errorf("after two failures: %q (%v)", got, err)
	}
	if other, err = open("s3://other"); err == nil {
		_, err = other.Get(t.Context(), "x")
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "GET s3://other/x at 127.0.0.1:") || !strings.HasSuffix(err.Error(), ": 404 NoSuchBucket") {
		t.Errorf("another bucket: %v", err)
	}
	environment["AWS_SECRET_ACCESS_KEY"] = "guessed"
	if b, err = open("s3://blobs"); err == nil {
		err = b.Put(t.Context(), "x", nil)
	}
	if err == nil || !strings.HasSuffix(err.Error(), ": 403 SignatureDoesNotMatch") {
		t.Errorf("with a wrong key: %v", err)
	}
	for variable, place := range map[string]string{"AWS_ENDPOINT_URL": "s3://blobs", "AWS_ACCESS_KEY_ID": "s3://blobs", "": "s3:/blobs"} {
		was := environment[variable]
		environment[variable] = ""
		if _, err := open(place); err == nil || variable != "" && !strings.Contains(err.Error(), store.Variables) {
			t.Errorf("without %s, %s: %v", variable, place, err)
		}
		environment[variable] = was
	}
}
