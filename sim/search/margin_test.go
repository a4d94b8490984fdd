package search

import (
	"testing"

	"github.com/fencelab/fencelab/controllers/reboot"
)

// TestSettingsOf: what a scenario says takes the place of the defaults, and only times count.
func TestSettingsOf(t *testing.T) {
	defaults := reboot.DefaultSettings()
	all, err := settingsOf(&defaults, []byte(`{"pollInterval": "3s", "bootTimeout": "0s"}`))
	if err != nil {
		t.Fatal(err)
	}
	if all.times["pollInterval"].Seconds() != 3 || all.times["softTimeout"].Seconds() != 180 || all.times["bootTimeout"] != 0 || len(all.keys) != 6 {
		t.Errorf("the times are %v, %v", all.keys, all.times)
	}
}
