package main

import (
	"testing"
	"time"
)

func TestAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		used time.Duration // in ten seconds
		want int
	}{
		{"nothing else to do", 20 * time.Second, 2},
		{"two busy loops that go last", 18 * time.Second, 2},
		{"two of them, and other virtual machines", 17 * time.Second, 2},
		{"a busy loop beside it", 15 * time.Second, 1},
		{"one on each core", 10 * time.Second, 1},
		{"four on each", 4 * time.Second, 1},
		{"more than there is", 21 * time.Second, 2},
		{"more cores than are ours", 39 * time.Second, 2},
	} {
		if got := atOnce(c.used, 10*time.Second, 2); got != c.want {
			t.Errorf("%s: %d stories at once, want %d", c.name, got, c.want)
		}
	}
}

func TestAllowed(t *testing.T) {
	if got, err := allowed(); got < 1 || err != nil {
		t.Errorf("%d stories at once, %v", got, err)
	}
}
