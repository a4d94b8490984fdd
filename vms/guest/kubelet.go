package main

import (
	"context"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/guest/kubelet"
)

// runKubelet is the kubelet of a boot, or another one in the same boot.
func runKubelet(again bool) error {
	port := os.NewFile(portFD, "port")
	out, err := newWitness(port, "")
	if err != nil {
		return err
	}
	started := evidence.KubeletStarted
	if again {
		started = evidence.KubeletAgain
	}
	out.say(started, "")
	config, err := readConfig()
	if err != nil {
		return err
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	uuid, _ := os.ReadFile("/sys/class/dmi/id/product_uuid") // the domain's UUID, by which a Node is matched to its machine
	machine := kubelet.Machine{
		Name: config.Name, Boot: out.boot, Address: config.Network.Address.Addr().String(),
		UUID: strings.TrimSpace(string(uuid)), Kernel: strings.TrimSpace(string(release)), OS: "fencelab guest",
	}
	workloads := newWorkloads(port, out, config)
	if again {
		workloads.adopt()
	}
	k, err := kubelet.New(config.Kubelet, machine, workloads, nil, func(trouble string) { out.say(evidence.Trouble, trouble) })
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	k.Run(ctx)
	return ctx.Err()
}
