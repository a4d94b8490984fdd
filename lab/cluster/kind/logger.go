package kind

import (
	"fmt"
	"strings"

	"sigs.k8s.io/kind/pkg/log"
)

// logger passes on which step kind begins. The rest is in its errors.
type logger struct{ Options }

func (l logger) Warn(string)           {}
func (l logger) Warnf(string, ...any)  {}
func (l logger) Error(string)          {}
func (l logger) Errorf(string, ...any) {}
func (l logger) V(v log.Level) log.InfoLogger {
	return steps{l.Options, v == 0}
}

type steps struct {
	Options
	enabled bool
}

func (s steps) Enabled() bool { return s.enabled }

func (s steps) Info(message string) {
	step, begins := strings.CutPrefix(message, " • ")
	if !s.enabled || !begins {
		return
	}
	plain := strings.Map(func(r rune) rune {
		if r > 0x7f {
			return -1
		}
		return r
	}, step)
	s.logf("kind: %s", strings.Trim(plain, " .\n"))
}

func (s steps) Infof(format string, args ...any) { s.Info(fmt.Sprintf(format, args...)) }
