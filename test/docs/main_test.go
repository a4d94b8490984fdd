// Package docs runs what the documents show, and holds what they say against the code.
package docs

import (
	"testing"

	"github.com/fencelab/fencelab/test/clone"
)

func TestMain(m *testing.M) { clone.Main(m) }
