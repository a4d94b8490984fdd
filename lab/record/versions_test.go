package record

import (
	"testing"
	"time"
)

// A list as of a time has the last version that there was by then.
func TestVersions(t *testing.T) {
	var v versions
	if got := v.AsOf(time.Second); got != "" {
		t.Errorf("without any version it is %q", got)
	}
	for i, text := range []string{"5", "9", "7", "what", "12"} {
		v.note(time.Duration(i)*time.Second, text)
	}
	for at, want := range map[time.Duration]string{-time.Second: "5", 0: "5", 2 * time.Second: "9", 4 * time.Second: "12", time.Hour: "12"} {
		if got := v.AsOf(at); got != want {
			t.Errorf("as of %s it is %s, want %s", at, got, want)
		}
	}
}
