package door

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// watchable is an API server whose last watch sends the lines given to tell. It answers every
// other request with its method.
func watchable(t *testing.T) (url string, tell func(line string)) {
	watches := make(chan chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, r.Method)
			return
		}
		told := make(chan string)
		watches <- told
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-told:
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	var last chan string
	return s.URL, func(line string) {
		for last == nil || len(watches) > 0 {
			last = <-watches
		}
		last <- line
	}
}

const hostsPath = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts"

// visitor is a client in front of a door.
type visitor struct {
	*testing.T
	url    string
	client http.Client
}

func (v *visitor) ask(ctx context.Context, method, query string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, v.url+hostsPath+query, nil)
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("User-Agent", "reboot")
	return v.client.Do(r)
}

// says asks for something, and returns what comes of it.
func (v *visitor) says(method string) string {
	response, err := v.ask(v.Context(), method, "")
	if err != nil {
		return errors.Unwrap(err).Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		var status struct{ Message string }
		_ = json.Unmarshal(body, &status)
		return fmt.Sprint(response.StatusCode, " ", status.Message)
	}
	return string(body)
}

// watch watches. The lines of the watch come one by one, and at the end "over".
func (v *visitor) watch() (lines chan string) {
	v.Helper()
	response, err := v.ask(v.Context(), http.MethodGet, "?watch=true&resourceVersion=7")
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { response.Body.Close() })
	lines = make(chan string, 10)
	if response.StatusCode != http.StatusOK {
		lines <- fmt.Sprint(response.StatusCode)
		return lines
	}
	go func() {
		var text strings.Builder
		buffer := make([]byte, 1)
		for {
			n, err := response.Body.Read(buffer)
			if text.Write(buffer[:n]); strings.HasSuffix(text.String(), "\n") {
				lines <- strings.TrimSpace(text.String())
				text.Reset()
			}
			if err != nil {
				lines <- "over"
				return
			}
		}
	}()
	return lines
}

func (v *visitor) hears(lines chan string, want string) {
	v.Helper()
	select {
	case got := <-lines:
		if got != want {
			v.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		v.Fatalf("heard nothing, want %q", want)
	}
}

func (v *visitor) hearsNothing(lines chan string) {
	v.Helper()
	select {
	case got := <-lines:
		v.Errorf("heard %q, want nothing", got)
	case <-time.After(50 * time.Millisecond):
	}
}

func atDoor(t *testing.T) (*Door, *visitor, func(string)) {
	url, tell := watchable(t)
	began := time.Now()
	d := New(record.NewStream(func() time.Duration { return time.Since(began) }), gate.API(objects.KindsOf(controllers.Default())))
	return d, &visitor{t, url, http.Client{Transport: d.Through(http.DefaultTransport)}}, tell
}

// faults returns the history's faults of the clients at the door.
func (d *Door) faults() (all []string) {
	for _, e := range d.stream.Pending() {
		if e.Kind == history.APIFault {
			all = append(all, fmt.Sprintf("%s %s %s %s", e.Actor, e.Note, e.Object, e.Value))
		}
	}
	return all
}

func TestOutageOfTheAPI(t *testing.T) {
	d, v, tell := atDoor(t)
	lines := v.watch()
	tell("one")
	v.hears(lines, "one")
	d.Shut(false)
	v.hears(lines, "over")
	if got := v.says(http.MethodGet); got != errAway.Error() || d.Takes() {
		t.Errorf("an API server that is away says %q", got)
	}
	d.Open()
	if got := v.says(http.MethodPatch); got != "PATCH" || !d.Takes() {
		t.Errorf("an API server that is back says %q", got)
	}
	if got := fmt.Sprint(d.faults()); got != "[reboot watch BareMetalHost/ outage reboot list BareMetalHost/ outage]" {
		t.Errorf("the history has %s", got)
	}
}

// TestHangOfTheAPI: who asks waits until he gives up, or until the server is back, which knows
// nothing of his request. Watches go on then with what there was.
func TestHangOfTheAPI(t *testing.T) {
	d, v, tell := atDoor(t)
	lines := v.watch()
	d.Shut(true)
	tell("one")
	v.hearsNothing(lines)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := v.ask(ctx, http.MethodGet, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who gives up hears %v", err)
	}
	answer := make(chan string)
	go func() { answer <- v.says(http.MethodPatch) }()
	v.hearsNothing(answer)
	d.Open()
	v.hears(answer, errAway.Error())
	v.hears(lines, "one")
}

func TestOutageOfTheStore(t *testing.T) {
	d, v, tell := atDoor(t)
	lines := v.watch()
	d.LoseStore()
	tell("one")
	v.hears(lines, "one")
	if got := v.says(http.MethodGet); got != "GET" {
		t.Errorf("a read is answered with %q", got)
	}
	if got := v.says(http.MethodPatch); got != "500 etcdserver: request timed out" {
		t.Errorf("a write is answered with %q", got)
	}
	d.Open()
	if got := v.says(http.MethodPatch); got != "PATCH" {
		t.Errorf("a write is answered with %q when the store is back", got)
	}
}

func TestFrozenWatch(t *testing.T) {
	d, v, tell := atDoor(t)
	lines := v.watch()
	d.Freeze(Watching{"reboot", "Machine"}) // another one
	tell("one")
	v.hears(lines, "one")
	hosts := Watching{"reboot", "BareMetalHost"}
	d.Freeze(hosts)
	tell("two")
	v.hearsNothing(lines)
	if got := v.says(http.MethodGet); got != "GET" {
		t.Errorf("a live read is answered with %q", got)
	}
	d.Thaw(hosts)
	v.hears(lines, "two")
	d.Freeze(hosts)
	d.Begin("reboot") // another process, whose watches are others
	lines = v.watch()
	tell("three")
	v.hears(lines, "three")
}

// TestExpiredWatch: a watch ends and is not resumed, once; the events that it had kept back never
// arrive.
func TestExpiredWatch(t *testing.T) {
	d, v, tell := atDoor(t)
	lines := v.watch()
	hosts := Watching{"reboot", "BareMetalHost"}
	d.Freeze(hosts)
	tell("one")
	d.Expire(hosts)
	v.hears(lines, "over")
	v.hears(v.watch(), "410")
	lines = v.watch()
	tell("two")
	v.hears(lines, "two")
	if got := fmt.Sprint(d.faults()); got != "[reboot watch BareMetalHost/ 410]" {
		t.Errorf("the history has %s", got)
	}
}
