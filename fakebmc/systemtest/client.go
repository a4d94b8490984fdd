package systemtest

import (
	"os"
	"os/exec"
	"testing"
)

// RequireClient skips a test, or with FENCELAB_REQUIRE_CLIENTS set fails it, where a client of BMCs
// can't be run that fakebmc/clients.sh installs. It runs it with the arguments, if there are any,
// and returns its path.
func RequireClient(t testing.TB, command string, args ...string) (path string) {
	t.Helper()
	path, err := exec.LookPath(command)
	var said []byte
	if err == nil && len(args) > 0 {
		said, err = exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	}
	switch {
	case err == nil:
	case os.Getenv("FENCELAB_REQUIRE_CLIENTS") != "":
		t.Fatalf("%s: %v; fakebmc/clients.sh installs it\n%s", command, err, said)
	default:
		t.Skipf("%s: %v; fakebmc/clients.sh installs it", command, err)
	}
	return path
}
