package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/hosts"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
)

// impossibleBMCs returns the reasons why the lab's hosts can't have foreign BMCs.
func (b *Backend) impossibleBMCs(spec *scenarios.Spec) []string {
	if spec.Topology.BMC == nil || !b.options.models() {
		return nil
	}
	return []string{"a program in the place of the BMCs: it drives domains, which model hosts are not; run with --hosts guest"}
}

// hostOfBMC holds the facts about a host that the program gets.
type hostOfBMC struct {
	Name   string `json:"name"`
	Domain string `json:"domain"`
	UUID   string `json:"uuid"`
}

// serveForeignBMCs starts the program, and an address for each host.
func (b *Backend) serveForeignBMCs() error {
	bmc := b.plan.Spec.Topology.BMC
	address, err := b.startForeignBMCs(bmc)
	if err != nil {
		return fmt.Errorf("start the program that takes the place of the BMCs: %w", err)
	}
	return b.hosts.BMCs.ServeForeign(address, bmc, b.hosts.Names, b.hosts.ByName)
}

// startForeignBMCs returns where the program serves Redfish.
func (b *Backend) startForeignBMCs(bmc *scenarios.BMC) (*url.URL, error) {
	uri, err := b.hosts.Machines.Hypervisor()
	switch {
	case err != nil:
		return nil, err
	case uri == "":
		return nil, errors.New("the hypervisor was opened by a story before it, for which nobody else had to reach it: run this scenario by itself")
	}
	own := filepath.Join(b.dir, "program-bmc")
	tmp := filepath.Join(own, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	var all []hostOfBMC
	for _, name := range b.hosts.Names {
		all = append(all, hostOfBMC{name, b.hosts.ByName[name].DomainName(), b.hosts.ByName[name].SystemUUID()})
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(own, "hosts")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	port, err := runner.FreePort()
	if err != nil {
		return nil, err
	}
	variables := map[string]string{
		"LIBVIRT_URI": uri, "HOSTS": file, "BMC_USERNAME": hosts.BMCUser, "BMC_PASSWORD": b.hosts.BMCs.Password,
		"PORT": strconv.Itoa(port), "TMPDIR": tmp, "HOME": tmp, "PATH": os.Getenv("PATH"),
	}
	program := bmc.Program()
	cmd, err := runner.Executable{Program: program, Image: b.images.of(program)}.Call(own, variables, nil)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, b.keeper.Mark())
	log := filepath.Join(b.dir, "bmc.log")
	process, err := child.Start("fencelab-bmc", cmd, log)
	if err != nil {
		return nil, err
	}
	b.hosts.BMCs.Adopt(process, log)
	address, err := url.Parse(bmc.AddressIn(variables))
	if err != nil {
		return nil, err
	}
	ctx, cancel := thismachine.WithBudget(b.ctx, b.options.readyWithin())
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return address, child.AwaitAnswer(ctx, client, address.JoinPath("redfish/v1/").String(), process)
}
