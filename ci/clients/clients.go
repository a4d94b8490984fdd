// Command clients has real clients of BMCs fence a host under each preset, and prints what each of
// them believed in the end: docs/bmc-clients.md. It takes some minutes, most of which clients wait.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	goipmi "github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stmcginnis/gofish"
	standard "github.com/stmcginnis/gofish/redfish"
)

const (
	user, password = "admin", "s3cret"
	// patience is for how long a client asks whether the host is off, if that can be said to it;
	// longer on a machine that is slow, but not as long as presets last. After limits times as long
	// it is ended.
	patience, most, limits = 10 * time.Second, 30 * time.Second, 4
)

// target describes a BMC to a client.
type target struct {
	host              string // an IP address
	redfishPort, ipmi string
	url, system       string
	patience          time.Duration
}

// seconds is the target's patience in seconds, for a command line.
func (t *target) seconds() string { return fmt.Sprintf("%.0f", t.patience.Seconds()) }

// client is a program or a library that switches hosts off.
type client struct {
	name, version string
	// off switches the host off, and returns nil once the client takes it for off.
	off func(context.Context, target) error
}

//go:embed off.py
var sushy string

//go:embed off.yaml
var playbook string

// The Python that has Debian's sushy; another one first in PATH hasn't.
const systemPython = "/usr/bin/python3"

var clients = []client{
	{"gofish", "0.20.0", byGofish},
	{"sushy, as Ironic uses it", "4.3.3", func(ctx context.Context, t target) error {
		_, err := run(ctx, systemPython, "-W", "ignore", "-c", sushy, t.url, t.system, user, password, t.seconds())
		return err
	}},
	{"Ansible, redfish_command", "7.7.0", byAnsible},
	{"fence_redfish", "4.12.1", func(ctx context.Context, t target) error {
		_, err := run(ctx, "fence_redfish", "--ip", t.host, "--ipport", t.redfishPort, "--ssl-insecure", "--username", user, "--password", password,
			"--power-timeout", t.seconds(), "--action", "off")
		return err
	}},
	{"fence_ipmilan", "4.12.1", func(ctx context.Context, t target) error {
		_, err := run(ctx, "fence_ipmilan", "--ip", t.host, "--ipport", t.ipmi, "--lanplus", "--cipher", "17", "--username", user, "--password", password,
			"--power-wait", "0", "--power-timeout", t.seconds(), "--action", "off")
		return err
	}},
	{"ipmitool", "1.8.19", byIpmitool},
	{"go-ipmi", "0.9.1", byGoIPMI},
	{"ipmipower", "1.6.10", func(ctx context.Context, t target) error {
		said, err := run(ctx, "ipmipower", "-h", t.host+":"+t.ipmi, "-u", user, "-p", password, "-D", "LAN_2_0", "-I", "17", "--off", "--wait-until-off")
		if err == nil && !strings.HasSuffix(said, ": ok") { // it says in words what came of a host
			err = fmt.Errorf("ipmipower: %s", said)
		}
		return err
	}},
}

// run runs a client, and returns what it says.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	// If these variables are set, Python's requests verifies certificates even when asked not to.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REQUESTS_CA_BUNDLE=") || strings.HasPrefix(v, "CURL_CA_BUNDLE=")
	})
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return said, err
}

// until asks again and again whether a host is off.
func (t *target) until(ctx context.Context, off func() (bool, error)) error {
	for end := time.Now().Add(t.patience); ; {
		is, err := off()
		switch {
		case err != nil || is:
			return err
		case time.Now().After(end):
			return errors.New("it is still on")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func byGofish(ctx context.Context, t target) error {
	c, err := gofish.ConnectContext(ctx, gofish.ClientConfig{Endpoint: t.url, Username: user, Password: password, Insecure: true})
	if err != nil {
		return err
	}
	defer c.Logout()
	system, err := standard.GetComputerSystem(c, t.system)
	if err != nil {
		return err
	}
	if err := system.Reset(standard.ForceOffResetType); err != nil {
		return err
	}
	return t.until(ctx, func() (bool, error) {
		system, err := standard.GetComputerSystem(c, t.system)
		return err == nil && system.PowerState == standard.OffPowerState, err
	})
}

func byAnsible(ctx context.Context, t target) error {
	dir, err := os.MkdirTemp("", "fencelab-ansible-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "off.yaml")
	if err := os.WriteFile(file, []byte(playbook), 0o600); err != nil {
		return err
	}
	_, err = run(ctx, "env", "HOME="+dir, "ANSIBLE_LOCALHOST_WARNING=false", "ANSIBLE_INVENTORY_UNPARSED_WARNING=false", "ANSIBLE_NOCOLOR=1",
		"ansible-playbook", "-i", "localhost,", "-e", fmt.Sprintf("bmc=%s:%s user=%s password=%s looks=%s", t.host, t.redfishPort, user, password, t.seconds()), file)
	return err
}

func byGoIPMI(ctx context.Context, t target) error {
	port, err := strconv.Atoi(t.ipmi)
	if err != nil {
		return err
	}
	c, err := goipmi.NewClient(t.host, port, user, password)
	if err != nil {
		return err
	}
	c.WithCipherSuiteID(types.CipherSuiteID17)
	if err := c.Connect(ctx); err != nil {
		return err
	}
	defer c.Close(ctx)
	if _, err := c.ChassisControl(ctx, chassis.ChassisControlPowerDown); err != nil {
		return err
	}
	return t.until(ctx, func() (bool, error) {
		status, err := c.GetChassisStatus(ctx)
		return err == nil && !status.PowerIsOn, err
	})
}

func byIpmitool(ctx context.Context, t target) error {
	tool := func(command string) (string, error) {
		return run(ctx, "ipmitool", "-I", "lanplus", "-H", t.host, "-p", t.ipmi, "-U", user, "-P", password, "-C", "17", "chassis", "power", command)
	}
	if _, err := tool("off"); err != nil {
		return err
	}
	return t.until(ctx, func() (bool, error) {
		said, err := tool("status")
		return strings.Contains(said, "is off"), err
	})
}
