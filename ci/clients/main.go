package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/ipmi"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/machine"
)

// belief is a client's conclusion about a BMC.
type belief string

const (
	off     belief = "off"
	fooled  belief = "**off, and it runs**"
	givesUp belief = "gives up"
	// untold is of a preset that takes more than one BMC with one host.
	untold belief = "-"
)

const (
	// powersOff is how long the host takes to power off, and grace how much longer it may.
	powersOff, grace = 300 * time.Millisecond, time.Second
)

func main() {
	only := flag.String("only", "*", "the presets and conditions, as a glob of their names")
	at := flag.Int("at-once", 8, "how many clients are at work at a time: most of them wait")
	tries := flag.Int(triesFlag, 10, "how often each client tries where chance has a say in what comes of it")
	verbose := flag.Bool("v", false, "print why clients give up")
	inside := flag.String(conditionFlag, "", "print what the clients believe under one condition, in JSON; the network is this process's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		if *inside != "" {
			return under(ctx, os.Stdout, *inside, *at, *tries)
		}
		return tables(ctx, os.Stdout, *only, *at, *tries, *verbose)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// These are given to the process that has a network of its own.
const conditionFlag, triesFlag = "condition", "tries"

// cell is the result of a client under a preset or a condition.
type cell struct {
	Believed belief `json:"believed"`
	// Offs are how often the BMC has carried out what the client asks for.
	Offs int    `json:"offs"`
	Why  string `json:"why,omitempty"`
	// Times counts the Tries in which it got there; 0 if it did in each.
	Times int `json:"times,omitempty"`
	Tries int `json:"tries,omitempty"`
}

func (c cell) String() string {
	text := string(c.Believed)
	if c.Tries > 0 && c.Believed == off {
		text += fmt.Sprintf(", %d of %d times", c.Times, c.Tries)
	}
	if c.Offs > 1 {
		text += fmt.Sprintf(", done %d times", c.Offs)
	}
	return text
}

// row is a preset or a condition, and a cell for each client.
type row struct {
	name, what string
	cells      []cell
}

// tables prints what each client believes under each preset, and over each poor network.
func tables(ctx context.Context, to io.Writer, only string, atOnce, tries int, verbose bool) error {
	if _, err := path.Match(only, ""); err != nil {
		return fmt.Errorf("-only %s: %w", only, err)
	}
	var rows []row
	for _, p := range fakebmc.Presets() {
		if match, _ := path.Match(only, p.Name); match {
			rows = append(rows, row{name: p.Name, what: p.Summary})
		}
	}
	certificate, err := redfish.SelfSigned("127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	here := place{listen: "127.0.0.1", certificate: certificate}
	all := func(i int, c client) (cell, error) {
		found, err := here.fence(ctx, []fakebmc.Rule{{Name: rows[i].name, Preset: rows[i].name}}, c)
		found.Offs = 0 // a preset may have it done again
		return found, err
	}
	if err := fill(rows, atOnce, all); err != nil {
		return err
	}
	if len(rows) > 0 {
		printTable(to, "preset", rows, verbose)
	}
	presets := len(rows)
	rows = nil
	for _, c := range conditions {
		if match, _ := path.Match(only, c.name); !match {
			continue
		}
		r := row{name: c.name, what: c.what}
		if r.cells, err = elsewhere(ctx, c.name, atOnce, tries); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	if len(rows) > 0 {
		if presets > 0 {
			fmt.Fprintln(to)
		}
		printTable(to, "between them", rows, verbose)
	}
	return ctx.Err()
}

// fill has every client at work in every row.
func fill(rows []row, atOnce int, one func(row int, c client) (cell, error)) error {
	errs := make([][]error, len(rows))
	var group sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range rows {
		rows[i].cells, errs[i] = make([]cell, len(clients)), make([]error, len(clients))
		for j, c := range clients {
			free <- struct{}{}
			group.Go(func() {
				defer func() { <-free }()
				if rows[i].cells[j], errs[i][j] = one(i, c); errs[i][j] != nil {
					errs[i][j] = fmt.Errorf("%s, %s: %w", rows[i].name, c.name, errs[i][j])
				}
			})
		}
	}
	group.Wait()
	return errors.Join(slices.Concat(errs...)...)
}

// printTable prints one, of which the last row sums up.
func printTable(to io.Writer, of string, rows []row, verbose bool) {
	header, rule, sums := "| "+of+" | what it does |", "|---|---|", "| **takes a running host for off** | |"
	for j, c := range clients {
		n := 0
		for _, r := range rows {
			if r.cells[j].Believed == fooled {
				n++
			}
			if verbose && r.cells[j].Why != "" {
				fmt.Fprintf(os.Stderr, "%s, %s: %s: %s\n", r.name, c.name, r.cells[j].Believed, r.cells[j].Why)
			}
		}
		header, rule = header+" "+c.name+" "+c.version+" |", rule+"---|"
		sums += fmt.Sprintf(" %d |", n)
	}
	fmt.Fprintln(to, header+"\n"+rule)
	for _, r := range rows {
		text := fmt.Sprintf("| `%s` | %s |", r.name, strings.ReplaceAll(r.what, "|", "\\|"))
		for _, c := range r.cells {
			text += " " + c.String() + " |"
		}
		fmt.Fprintln(to, text)
	}
	fmt.Fprintln(to, sums)
}

// elsewhere has the clients at work under a condition, in a network of their own.
func elsewhere(ctx context.Context, condition string, atOnce, tries int) ([]cell, error) {
	cmd, err := inNetwork(ctx, "-"+conditionFlag, condition, "-at-once", fmt.Sprint(atOnce), "-"+triesFlag, fmt.Sprint(tries))
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var cells []cell
	return cells, json.Unmarshal(out, &cells)
}

// under prints what the clients believe under a condition.
func under(ctx context.Context, to io.Writer, name string, atOnce, tries int) error {
	i := slices.IndexFunc(conditions, func(c condition) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("-%s %s: there is none of this name", conditionFlag, name)
	}
	if err := conditions[i].link.open(); err != nil {
		return err
	}
	var rules []fakebmc.Rule
	if conditions[i].rules != "" {
		var err error
		if rules, err = fakebmc.ParseRules([]byte(conditions[i].rules)); err != nil {
			return err
		}
	}
	certificate, err := redfish.SelfSigned(far.String())
	if err != nil {
		return err
	}
	there := place{listen: near.String(), seen: far.String(), certificate: certificate, slow: slower}
	if !conditions[i].link.chances() {
		tries = 1
	}
	rows := make([]row, tries)
	for i := range rows {
		rows[i].name = name
	}
	if err := fill(rows, atOnce, func(_ int, c client) (cell, error) { return there.fence(ctx, rules, c) }); err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(sum(rows))
}

// sum combines several tries of each client: whether it was fooled in any, or else got there in
// any, and in how many.
func sum(rows []row) []cell {
	cells := make([]cell, len(clients))
	for j := range cells {
		sum := &cells[j]
		for _, r := range rows {
			c := r.cells[j]
			switch {
			case c.Believed == fooled, sum.Believed == "":
				sum.Believed = c.Believed
			case c.Believed == off && sum.Believed == givesUp:
				sum.Believed = off
			}
			if c.Believed == off {
				sum.Times++
			}
			if c.Why != "" {
				sum.Why = c.Why
			}
			sum.Offs = max(sum.Offs, c.Offs)
		}
		if sum.Tries = len(rows); sum.Times == sum.Tries {
			sum.Tries = 0
		}
	}
	return cells
}

// slower is how many times as patient clients are over a poor network.
const slower = 2

// place is where BMCs are served.
type place struct {
	listen      string
	seen        string // by clients; empty if as it is
	certificate *tls.Certificate
	slow        float64 // 0 is 1
}

// fence has a client switch a host off whose BMC has some rules.
func (p place) fence(ctx context.Context, rules []fakebmc.Rule, c client) (_ cell, err error) {
	clk := wall.Clock()
	host := memory.New(clk, memory.Timing{On: time.Second, Off: powersOff, Shutdown: time.Second}, true)
	var offs atomic.Int32
	bmc := fakebmc.New("node-1", host, clk, fakebmc.OnRequest(func(r fakebmc.Record) {
		if r.Request.ResetType == fakebmc.ResetForceOff && r.Executed != fakebmc.Never {
			offs.Add(1)
		}
	}))
	defer bmc.Close()
	server, err := redfish.NewServer(redfish.Config{Username: user, Password: password, Certificate: p.certificate})
	if err != nil {
		return cell{}, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	address, err := server.Listen(net.JoinHostPort(p.listen, "0"), bmc)
	if err != nil {
		return cell{}, err
	}
	lan, err := ipmi.Listen(net.JoinHostPort(p.listen, "0"), bmc, ipmi.Config{Username: user, Password: password})
	if err != nil {
		return cell{}, err
	}
	defer func() { err = errors.Join(err, lan.Close()) }()
	for _, r := range rules {
		if err := bmc.AddRule(r); errors.Is(err, fakebmc.ErrUnsupported) {
			return cell{Believed: untold}, nil
		} else if err != nil {
			return cell{}, err
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		return cell{}, err
	}
	if p.seen != "" {
		u.Host = net.JoinHostPort(p.seen, u.Port())
	}
	_, port, err := net.SplitHostPort(lan.Addr().String())
	if err != nil {
		return cell{}, err
	}
	patience := min(most, time.Duration(float64(patience)*max(1, p.slow)*machine.Slowness()))
	limited, cancel := context.WithTimeout(ctx, limits*patience)
	defer cancel()
	failure := c.off(limited, target{host: u.Hostname(), redfishPort: u.Port(), ipmi: port, url: u.String(), system: bmc.SystemPath(), patience: patience})
	state, err := host.PowerState()
	// A client that takes PoweringOff for off is right a moment later, as long as the host does
	// power off.
	for end := time.Now().Add(grace); failure == nil && err == nil && state != fakebmc.Off && time.Now().Before(end); state, err = host.PowerState() {
		time.Sleep(powersOff / 10)
	}
	result := cell{Believed: off, Offs: int(offs.Load())}
	switch {
	case err != nil || ctx.Err() != nil:
		return cell{}, errors.Join(err, ctx.Err())
	case failure != nil:
		result.Believed, result.Why = givesUp, failure.Error()
	case state != fakebmc.Off:
		result.Believed = fooled
	}
	return result, nil
}
