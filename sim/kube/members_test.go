package kube

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

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
