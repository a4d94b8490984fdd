package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgress: on a terminal there is one line with the rate, the time left and the
// failures so far, which is never too wide; elsewhere a line every half minute.
func TestProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		p := newProgress(&out, terminal, func() time.Time { return now }, strings.Repeat("long-name-", 9), 100000)
		for range 100 {
			now = now.Add(time.Second)
			p.At(int(now.Sub(p.began).Seconds())*250, 3)
		}
		now = now.Add(said)
		p.Explaining(312, 2000)
		p.Clear()
		text := out.String()
		if want := ": explaining a failure, 312 schedules tried of at most 2000"; !strings.Contains(text, want) {
			t.Errorf("terminal %t: %q doesn't say %q", terminal, text, want)
		}
		if want := "22500 of 100000 schedules, 250/s, 5m10s left, 3 failed"; !strings.Contains(text, want) {
			t.Errorf("terminal %t: %q doesn't say %q", terminal, text, want)
		}
		if lines := strings.Count(text, "\n"); !terminal && lines != 4 {
			t.Errorf("%d lines in 130 s, want one every 30 s:\n%s", lines, text)
		}
		for _, line := range strings.Split(text, "\r\x1b[K") {
			if terminal && (len(line) > width || strings.Contains(line, "\n")) {
				t.Errorf("on a terminal of 80 columns this wraps: %q", line)
			}
		}
		if terminal && !strings.HasSuffix(text, "\r\x1b[K") {
			t.Error("the line is left behind")
		}
	}
}
