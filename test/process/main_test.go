// Package process tries fencelab as processes of a machine: labs side by side, BMCs and systems
// under test served and driven from outside, and what is left after a kill.
package process

import (
	"testing"

	"github.com/fencelab/fencelab/test/clone"
)

func TestMain(m *testing.M) { clone.Main(m) }
