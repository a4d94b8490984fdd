package recording

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// maxRecord is how long a line of a log may be.
const maxRecord = 1 << 20

// ReplayOptions say how a client's requests are played.
type ReplayOptions struct {
	// URL is the address of the service, without a path.
	URL string
	// Username and Password are sent with each request that had been let in, as Basic
	// authentication; empty ones with none.
	Username, Password string
	// Client sends the requests; nil is one that accepts any certificate if Insecure is set.
	Client   *http.Client
	Insecure bool
	// Host is the one whose requests are played; empty is all.
	Host string
	// As is the Id that this host has at the service, if another than in the log: what stands in
	// the paths is replaced. A log of several hosts needs a Host then.
	As string
	// InTurn sends each request when the one before has been answered. Otherwise each is sent as
	// long after the first as it was received, whatever has been answered by then.
	InTurn bool
	// Patience is how long a request waits for its answer.
	Patience time.Duration
}

// Difference is a request that was answered otherwise than before.
type Difference struct {
	Record   fakebmc.Record
	Was, Now string
}

func (d Difference) String() string {
	r := &d.Record.Request
	what := r.Method + " " + r.Path
	if r.ResetType != "" {
		what += " " + string(r.ResetType)
	}
	return fmt.Sprintf("request %d of %s, %s: it was answered %s, and now %s", d.Record.Seq, d.Record.Host, what, d.Was, d.Now)
}

// Replayed is what came of a replay.
type Replayed struct {
	Requests int
	// Left is how many requests were not played, by the reason.
	Left        map[string]int
	Differences []Difference
}

// Replay plays the requests of a log, as fencelab bmc --log writes it, against a service, and
// compares the answers: their status, the power state that they report, and that there was one at
// all. An error that is an ErrInput is about the log or the options.
func Replay(ctx context.Context, log io.Reader, o ReplayOptions) (*Replayed, error) {
	base, err := service(o.URL)
	if err != nil {
		return nil, fmt.Errorf("replay at %s: %w", o.URL, err)
	}
	result := &Replayed{Left: map[string]int{}}
	records, err := o.read(log, result.Left)
	if err != nil {
		return nil, err
	}
	if o.As != "" && slices.ContainsFunc(records, func(r fakebmc.Record) bool { return r.Host != records[0].Host }) {
		return nil, fmt.Errorf("replay the log: %w: it is of %s and of others, which can't all be %s: name one of them", ErrInput, records[0].Host, o.As)
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("replay the log: %w: it has no request that can be played%s", ErrInput, leftOut(result.Left))
	}
	p := &replayer{ReplayOptions: o, base: base, client: o.Client}
	if p.client == nil {
		transport := transport(o.Insecure)
		defer transport.CloseIdleConnections()
		p.client = &http.Client{Transport: transport}
	}
	own := *p.client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.client = &own
	now := p.play(ctx, records)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("replay at %s: %w", o.URL, context.Cause(ctx))
	}
	if !slices.ContainsFunc(now, func(a answer) bool { return !a.refused }) {
		return nil, fmt.Errorf("replay at %s: nobody listens there; start a service", o.URL)
	}
	result.Requests = len(records)
	for i, record := range records {
		if was := before(&record); was != now[i].text {
			result.Differences = append(result.Differences, Difference{record, was, now[i].text})
		}
	}
	return result, nil
}

// read returns what can be played, in the order in which it was received.
func (o *ReplayOptions) read(log io.Reader, left map[string]int) (records []fakebmc.Record, err error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxRecord)
	for number := 1; lines.Scan(); number++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var r fakebmc.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("replay the log: %w: line %d is no request as fencelab bmc --log writes it: %w", ErrInput, number, err)
		}
		switch why := unplayable(&r.Request); {
		case o.Host != "" && r.Host != o.Host:
			left["of other hosts"]++
		case why != "":
			left[why]++
		default:
			records = append(records, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	slices.SortStableFunc(records, func(a, b fakebmc.Record) int { return cmp.Compare(a.Received, b.Received) })
	return records, nil
}

// unplayable says why a request is not played; empty if it is.
func unplayable(r *fakebmc.Request) string {
	switch {
	case r.Via != "" && r.Via != fakebmc.ViaRedfish:
		return "over IPMI"
	case r.ByBMC():
		return "by the BMC itself"
	case strings.HasSuffix(r.Path, "/Sessions") && r.Method == http.MethodPost, strings.Contains(r.Path, "/Sessions/") && r.Method == http.MethodDelete:
		return "that begin or end a session"
	case strings.Contains(r.Path, "/Sessions/"):
		return "about a session"
	}
	return ""
}

// leftOut lists what was not played, in brackets.
func leftOut(left map[string]int) string {
	var parts []string
	for why, n := range left {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " (left out: " + strings.Join(parts, ", ") + ")"
}

// LeftOut lists what was not played, in brackets; empty if all was.
func (r *Replayed) LeftOut() string { return leftOut(r.Left) }

// before is what a request was answered.
func before(r *fakebmc.Record) string {
	switch {
	case r.Answered == fakebmc.Never:
		return silence
	case r.Answer.Status == 0:
		return broken
	}
	return told(r.Answer.Status, string(r.Answer.PowerState), isPower(r, r.Answer.Status))
}

// The answers that are none.
const (
	silence = "with silence"
	broken  = "by a connection that broke"
)

// isPower reports whether an answer to a request has the host's power. The log says so: others'
// systems have the power that a mockup has them in, wherever their paths are.
func isPower(r *fakebmc.Record, status int) bool {
	return r.Request.Method == http.MethodGet && status == http.StatusOK && (r.Actual != "" || r.Answer.PowerState != "")
}

func told(status int, state string, power bool) string {
	if power {
		return fmt.Sprintf("%d, power %s", status, cmp.Or(state, "null"))
	}
	return fmt.Sprint(status)
}

type replayer struct {
	ReplayOptions
	base   *url.URL
	client *http.Client
}

// answer is what came back now.
type answer struct {
	text    string
	refused bool // nobody listens
}

// play sends the requests and returns what each was answered.
func (p *replayer) play(ctx context.Context, records []fakebmc.Record) []answer {
	answers := make([]answer, len(records))
	if p.InTurn {
		for i := range records {
			answers[i] = p.ask(ctx, &records[i])
		}
		return answers
	}
	began := time.Now()
	var sent sync.WaitGroup
	for i := range records {
		timer := time.NewTimer(records[i].Received - records[0].Received - time.Since(began))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			sent.Wait()
			return answers
		}
		sent.Go(func() { answers[i] = p.ask(ctx, &records[i]) })
	}
	sent.Wait()
	return answers
}

// at is where the request of a record goes.
func (p *replayer) at(record *fakebmc.Record) string {
	if p.As == "" {
		return record.Request.Path
	}
	segments := strings.Split(record.Request.Path, "/")
	for i, segment := range segments {
		if segment == record.Host {
			segments[i] = p.As
		}
	}
	return strings.Join(segments, "/")
}

// ask sends a request as it was received.
func (p *replayer) ask(ctx context.Context, record *fakebmc.Record) answer {
	ctx, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	r := &record.Request
	to := *p.base
	to.Path, to.RawQuery = p.at(record), r.Query
	body := r.Body
	if body == "" && r.ResetType != "" { // a log of an older fencelab
		body = fmt.Sprintf(`{"ResetType":%q}`, r.ResetType)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, to.String(), strings.NewReader(body))
	if err != nil {
		return answer{text: err.Error()}
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if p.Username != "" && record.Answer.Status != http.StatusUnauthorized {
		request.SetBasicAuth(p.Username, p.Password)
	}
	response, err := p.client.Do(request)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return answer{text: silence}
	}
	if err != nil {
		var dial *net.OpError
		return answer{text: broken, refused: errors.As(err, &dial) && dial.Op == "dial"}
	}
	defer response.Body.Close()
	if !isPower(record, response.StatusCode) {
		return answer{text: told(response.StatusCode, "", false)} // an event stream has no end
	}
	var system struct{ PowerState string }
	if data, err := io.ReadAll(io.LimitReader(response.Body, maxBody)); err != nil {
		return answer{text: broken}
	} else if err := json.Unmarshal(data, &system); err != nil {
		return answer{text: fmt.Sprintf("%d, with what is no JSON", response.StatusCode)}
	}
	return answer{text: told(response.StatusCode, system.PowerState, true)}
}
