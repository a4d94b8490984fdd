package lab

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// TestEarshot lets an agent ask, and looks when it is known that it hears the answers.
func TestEarshot(t *testing.T) {
	const nodes, machines = "/api/v1/nodes", "/apis/cluster.x-k8s.io/v1beta2/machines"
	for name, c := range map[string]struct {
		asked []string // a path, and what becomes of the request
		heard bool
	}{
		"one look":                      {[]string{nodes, machines}, false},
		"the next look has begun":       {[]string{nodes, machines, nodes}, true},
		"nothing is answered":           {[]string{nodes + " lost", nodes + " lost"}, false},
		"the second look fails":         {[]string{nodes, machines + " lost", nodes}, false},
		"the API server is overwhelmed": {[]string{nodes, machines + " fails", nodes}, false},
		"a look after one that failed":  {[]string{nodes + " lost", nodes, machines, nodes}, true},
		"it watches":                    {[]string{nodes, nodes + "?watch=1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			heard, answer := false, ""
			h := &earshot{heard: func() { heard = true }, next: roundTrip(func(*http.Request) (*http.Response, error) {
				switch answer {
				case "lost":
					return nil, errors.New("no route to host")
				case "fails":
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			for _, asked := range c.asked {
				path, becomes, _ := strings.Cut(asked, " ")
				answer = becomes
				request, err := http.NewRequest(http.MethodGet, "https://api"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if response, err := h.RoundTrip(request); err == nil {
					response.Body.Close()
				}
			}
			if heard != c.heard {
				t.Errorf("heard: %t", heard)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
