package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// listener records what it is called with, and answers as the test says.
type listener struct {
	told func(context.Context, Change) error
	asOf string

	mu    sync.Mutex
	notes []string
}

func (l *listener) Told(ctx context.Context, r Request, c Change) error {
	l.mu.Lock()
	l.notes = append(l.notes, fmt.Sprintf("%s/%s listed=%t deleted=%t", r.Watches.Name, c.Object.GetName(), c.Listed, c.Deleted))
	l.mu.Unlock()
	if l.told == nil {
		return nil
	}
	return l.told(ctx, c)
}

func (l *listener) AsOf(Request) string { return l.asOf }

// listening is a way whose gate has a listener.
func listening(t *testing.T, l *listener, handler http.HandlerFunc, test func(t *testing.T, client *http.Client, address string)) {
	judge := new(script)
	ways(t, judge, Addresses{}, handler, func(t *testing.T, client *http.Client, address string) {
		l.notes = nil
		test(t, client, address)
	}, func(g *Gate) { g.Listener = l })
}

// A listener gets each change before the client does, and can end the watch instead.
func TestAListenerHoldsAWatch(t *testing.T) {
	const events = `{"type":"ADDED","object":{"metadata":{"name":"old"}}}
{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"MODIFIED","object":{"metadata":{"name":"worker-1"}}}
{"type":"DELETED","object":{"metadata":{"name":"worker-1"}}}
`
	for name, c := range map[string]struct {
		answer error
		want   string // the end of what the client hears
		broken bool
	}{
		"pass":   {nil, `{"type":"DELETED","object":{"metadata":{"name":"worker-1"}}}` + "\n", false},
		"expire": {&Refusal{Code: http.StatusGone, Message: "too old"}, `"message":"too old","reason":"Expired","code":410}}` + "\n", false},
		"cut":    {errors.New("cut"), `{"type":"MODIFIED","object":{"metadata":{"name":"worker-1"}}}` + "\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listener{told: func(_ context.Context, change Change) error {
				if change.Deleted {
					return c.answer
				}
				return nil
			}}
			listening(t, l, func(w http.ResponseWriter, r *http.Request) {
				if accepts := r.Header.Get("Accept"); accepts != "application/json" {
					t.Errorf("the server is asked for %s", accepts)
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, events)
			}, func(t *testing.T, client *http.Client, address string) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/nodes?watch=true&sendInitialEvents=true", nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Accept", "application/vnd.kubernetes.protobuf, application/json")
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				if (err != nil) != c.broken || !strings.HasSuffix(string(text), c.want) {
					t.Errorf("the client heard %v\n%swant the end\n%s", err, text, c.want)
				}
				want := []string{"Node/old listed=true deleted=false", "Node/worker-1 listed=false deleted=false", "Node/worker-1 listed=false deleted=true"}
				if !slices.Equal(l.notes, want) {
					t.Errorf("the listener was told %q, want %q", l.notes, want)
				}
			})
		})
	}
}

// A list that fills a cache is answered as of a version; one that doesn't is not.
func TestListsAsOf(t *testing.T) {
	asked := make(chan string, 1)
	l := &listener{asOf: "41"}
	listening(t, l, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"items":[{"metadata":{"name":"worker-1"}}]}`)
	}, func(t *testing.T, client *http.Client, address string) {
		for query, want := range map[string]string{
			"limit=500&resourceVersion=0": "limit=500&resourceVersion=41&resourceVersionMatch=Exact",
			"labelSelector=a":             "labelSelector=a",
		} {
			if _, text, err := do(t, client, http.MethodGet, address+"/api/v1/nodes?"+query, ""); err != nil || !strings.Contains(text, "worker-1") {
				t.Errorf("the client got %q, %v", text, err)
			}
			if got := <-asked; got != want {
				t.Errorf("%s became %s, want %s", query, got, want)
			}
		}
		if want := "Node/worker-1 listed=true deleted=false"; len(l.notes) != 2 || l.notes[0] != want {
			t.Errorf("the listener was told %q, want %q twice", l.notes, want)
		}
	})
}

// A late request reaches the server after its client has stopped waiting.
func TestALateRequestIsSent(t *testing.T) {
	served := make(chan string, 1)
	var send func(context.Context) Answer
	judge := &script{asked: func(context.Context, Request) error {
		return &Late{Err: errors.New("given up"), Later: func(later func(context.Context) Answer) { send = later }}
	}}
	ways(t, judge, Addresses{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		served <- r.Method + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"}}`)
	}, func(t *testing.T, client *http.Client, address string) {
		if response, _, err := do(t, client, http.MethodPatch, address+node, `{"metadata":{}}`); err == nil {
			t.Errorf("the client got %s", response.Status)
		}
		select {
		case got := <-served:
			t.Fatalf("the server heard %s at once", got)
		default:
		}
		if answer := send(t.Context()); answer.Err != nil || answer.Status != http.StatusOK || answer.Version != "7" {
			t.Errorf("the answer is %+v", answer)
		}
		if got := <-served; got != `PATCH {"metadata":{}}` {
			t.Errorf("the server heard %s", got)
		}
	})
}
