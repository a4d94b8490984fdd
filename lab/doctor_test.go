package lab

import "testing"

func TestVerdict(t *testing.T) {
	without := []string{"clusters of kind's: run make kind", "power through Ironic: run lab/ironic/install.sh"}
	for _, test := range []struct {
		name                  string
		guests, models, short bool
		without               []string
		want                  string
		whole                 bool
	}{
		{"nothing is built", false, false, false, without,
			"The simulator can run here; the lab cannot. Run: make lab", false},
		{"nothing is built, and the disk is full", false, false, true, without,
			"The simulator can run here; the lab cannot. Run: make lab; make room first (see the lines of memory and space)", false},
		{"no guests", false, true, false, nil,
			"The simulator can run here, and so can the lab with --hosts model; it cannot run with guests. Run: make lab", false},
		{"all is built, and the disk is full", true, true, true, without,
			"The simulator can run here; the lab has too little room (see the lines of memory and space)", false},
		{"only what few stories need is missing", true, true, false, without,
			"Every world can run here, without clusters of kind's: run make kind; and without power through Ironic: run lab/ironic/install.sh.", true},
		{"all is there", true, true, false, nil, "Every world can run here.", true},
	} {
		if got, whole := verdict(test.guests, test.models, test.short, test.without); got != test.want || whole != test.whole {
			t.Errorf("%s: %q, %t; want %q, %t", test.name, got, whole, test.want, test.whole)
		}
	}
}
