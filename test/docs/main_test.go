// Package docs runs the examples of the documents, and checks their statements against the code.
package docs

import (
	"testing"

	"github.com/fencelab/fencelab/test/clone"
)

func TestMain(m *testing.M) { clone.Main(m) }
