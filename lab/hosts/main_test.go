package hosts

import (
	"os"
	"testing"

	"github.com/fencelab/fencelab/vms/keeper"
)

func TestMain(m *testing.M) {
	keeper.Main() // of virtual machines
	os.Exit(m.Run())
}
