package kube

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// TestPlainString: a string that is decoded by hand is the one that encoding/json finds.
func TestPlainString(t *testing.T) {
	for text, plain := range map[string]bool{
		`"worker-1"`: true, `""`: true, `"a b"`: true, `"a\"b"`: false, `"\u0061"`: false, `"ä"`: false, `"`: false, `1`: false, `null`: false,
	} {
		var want string
		err := json.Unmarshal([]byte(text), &want)
		got, ok := plainString([]byte(text))
		if ok != plain || ok && (err != nil || got != want) {
			t.Errorf("%s: %q, %t; want %q, %v", text, got, ok, want, err)
		}
	}
}

// FuzzMembers compares the splitting of objects with that of encoding/json.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":{"b":[1,{"c":"}"}]},"d":null}`, `{"a":"\\"","b":"\\\\"}`, `{"\\u0061":1,"a":2}`, `[]`, `null`, `"x"`, `{"a":}`, `{"a":[`, "{\"a\" : true ,\n\"b\": -1e3 }",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(data, &want)
		got, err := decodePatch(data)
		if (wantErr != nil || want == nil) != (err != nil) {
			t.Fatalf("%s: error %v, want %v", data, err, wantErr)
		}
		if err != nil {
			return
		}
		for name := range want { // order does not matter: each is compared
			want[name] = bytes.TrimSpace(want[name])
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s splits into %s, want %s", data, got, want)
		}
	})
}
