package lab

import (
	"encoding/base64"
	"net/http"
	"testing"
)

// TestPodIdentity: a Pod is known by what its token says, and what is no such token says nothing.
func TestPodIdentity(t *testing.T) {
	token := func(claims string) string {
		return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, c := range map[string]struct {
		authorization string
		want          podIdentity
		pod           string
	}{
		"of a Pod": {
			token(`{"sub":"system:serviceaccount:default:agent","kubernetes.io":{"namespace":"default","node":{"name":"n-1","uid":"u"},"pod":{"name":"agent-x","uid":"p"}}}`),
			podIdentity{"system:serviceaccount:default:agent", "n-1"}, "p",
		},
		"of an account":   {token(`{"sub":"system:serviceaccount:default:agent"}`), podIdentity{user: "system:serviceaccount:default:agent"}, ""},
		"none":            {"", podIdentity{}, ""},
		"of another kind": {"Bearer abcdef.0123456789abcdef", podIdentity{}, ""},
		"no JSON":         {token("agent"), podIdentity{}, ""},
		"no base64":       {"Bearer a.?.c", podIdentity{}, ""},
	} {
		request, err := http.NewRequest(http.MethodGet, "https://10.96.0.1/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", c.authorization)
		if got, pod := identity(request); got != c.want || pod != c.pod {
			t.Errorf("%s: %+v in %q, want %+v in %q", name, got, pod, c.want, c.pod)
		}
	}
}
