package main

import "testing"

func TestAtOnce(t *testing.T) {
	const before = "cpu  100 0 100 1000 50 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 7\n"
	for _, c := range []struct {
		name, after string
		want        int
	}{
		{"nothing else to do", "cpu  101 0 102 1997 50 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 7\n", 2},
		{"one core is busy", "cpu  600 0 100 1490 60 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 7\n", 1},
		{"both are", "cpu  1100 0 100 1000 50 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 7\n", 1},
		{"a disk is waited for", "cpu  100 0 100 1000 1050 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 7\n", 2},
		{"others take it away", "cpu  100 0 100 1000 50 0 0 1000 0 0\ncpu0 1\ncpu1 1\nintr 7\n", 1},
		{"more cores than are ours", "cpu  100 0 100 9000 50 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 7\n", 2},
	} {
		if got, err := atOnce([]byte(before), []byte(c.after), 2); got != c.want || err != nil {
			t.Errorf("%s: %d stories at once (%v), want %d", c.name, got, err, c.want)
		}
	}
	for name, stat := range map[string]string{"nothing": "", "another file": "MemTotal: 5 kB\n", "words": "cpu a b c d e f g h\n", "no time has passed": before} {
		if got, err := atOnce([]byte(before), []byte(stat), 2); err == nil {
			t.Errorf("%s: %d", name, got)
		}
	}
}
