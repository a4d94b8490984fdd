package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/ipmi"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// belief is what a client made of a BMC.
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
	only := flag.String("only", "*", "the presets, as a glob of their names")
	at := flag.Int("at-once", 8, "how many clients are at work at a time: most of them wait")
	verbose := flag.Bool("v", false, "print why clients give up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := table(ctx, os.Stdout, *only, *at, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// table prints what each client believes under each preset.
func table(ctx context.Context, to io.Writer, only string, atOnce int, verbose bool) error {
	var presets []fakebmc.Preset
	for _, p := range fakebmc.Presets() {
		if match, err := path.Match(only, p.Name); err != nil {
			return fmt.Errorf("-only %s: %w", only, err)
		} else if match {
			presets = append(presets, p)
		}
	}
	certificate, err := redfish.SelfSigned("127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	believed := make([][]belief, len(presets))
	errs := make([][]error, len(presets))
	var group sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, p := range presets {
		believed[i], errs[i] = make([]belief, len(clients)), make([]error, len(clients))
		for j, c := range clients {
			free <- struct{}{}
			group.Go(func() {
				defer func() { <-free }()
				believed[i][j], errs[i][j] = fence(ctx, p, c, certificate)
				if verbose && errs[i][j] != nil {
					fmt.Fprintf(os.Stderr, "%s, %s: %s: %v\n", p.Name, c.name, believed[i][j], errs[i][j])
				}
			})
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	header, rule, sums := "| preset | what it does |", "|---|---|", "| **takes a running host for off** | |"
	for j, c := range clients {
		n := 0
		for i := range presets {
			if believed[i][j] == "" {
				return fmt.Errorf("%s, %s: %w", presets[i].Name, c.name, errs[i][j])
			}
			if believed[i][j] == fooled {
				n++
			}
		}
		header, rule = header+" "+c.name+" "+c.version+" |", rule+"---|"
		sums += fmt.Sprintf(" %d |", n)
	}
	fmt.Fprintln(to, header+"\n"+rule)
	for i, p := range presets {
		row := fmt.Sprintf("| `%s` | %s |", p.Name, strings.ReplaceAll(p.Summary, "|", "\\|"))
		for _, b := range believed[i] {
			row += " " + string(b) + " |"
		}
		fmt.Fprintln(to, row)
	}
	fmt.Fprintln(to, sums)
	return nil
}

// fence has a client switch a host off whose BMC has a preset.
func fence(ctx context.Context, p fakebmc.Preset, c client, certificate *tls.Certificate) (_ belief, err error) {
	clk := wall.Clock()
	host := memory.New(clk, memory.Timing{On: time.Second, Off: powersOff, Shutdown: time.Second}, true)
	bmc := fakebmc.New("node-1", host, clk)
	defer bmc.Close()
	server, err := redfish.NewServer(redfish.Config{Username: user, Password: password, Certificate: certificate})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	address, err := server.Listen("127.0.0.1:0", bmc)
	if err != nil {
		return "", err
	}
	lan, err := ipmi.Listen("127.0.0.1:0", bmc, ipmi.Config{Username: user, Password: password})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lan.Close()) }()
	if err := bmc.AddRule(fakebmc.Rule{Name: p.Name, Preset: p.Name}); errors.Is(err, fakebmc.ErrUnsupported) {
		return untold, nil
	} else if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(lan.Addr().String())
	if err != nil {
		return "", err
	}
	patience := min(most, time.Duration(float64(patience)*machine.Slowness()))
	limited, cancel := context.WithTimeout(ctx, limits*patience)
	defer cancel()
	failure := c.off(limited, target{host: u.Hostname(), redfishPort: u.Port(), ipmi: port, url: address, system: bmc.SystemPath(), patience: patience})
	state, err := host.PowerState()
	// Who takes PoweringOff for off is right a moment later, as long as the host does power off.
	for end := time.Now().Add(grace); failure == nil && err == nil && state != fakebmc.Off && time.Now().Before(end); state, err = host.PowerState() {
		time.Sleep(powersOff / 10)
	}
	switch {
	case err != nil || ctx.Err() != nil:
		return "", errors.Join(err, ctx.Err())
	case failure != nil:
		return givesUp, failure
	case state != fakebmc.Off:
		return fooled, nil
	}
	return off, nil
}
