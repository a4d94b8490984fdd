package scenarios

import (
	"slices"
	"testing"
)

// TestGivenVariables: a program is given what its environment doesn't empty, and adds its own.
func TestGivenVariables(t *testing.T) {
	p := Program{Command: []string{"run", "--at=${API_SERVER}", "${OWN}"}, Env: map[string]string{"KUBECONFIG": "", "OWN": "of ${NAMESPACE}", "EMPTY": ""}}
	call := p.In(map[string]string{"KUBECONFIG": "/file", "API_SERVER": "https://here", "NAMESPACE": "there"})
	if want := []string{"run", "--at=https://here", "of there"}; !slices.Equal(call.Command, want) {
		t.Errorf("it is called as %q, want %q", call.Command, want)
	}
	if want := []string{"API_SERVER=https://here", "EMPTY=", "NAMESPACE=there", "OWN=of there"}; !slices.Equal(call.Env, want) {
		t.Errorf("its environment is %q, want %q", call.Env, want)
	}
}
