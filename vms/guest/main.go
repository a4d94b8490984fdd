// Command guest is all of user space in a fencelab VM: it is PID 1, and executed again it is the
// kubelet and each workload. It links nothing but the standard library and the system call numbers,
// since every byte of it is loaded by an emulated machine at each boot.
//
//	init      PID 1: mounts, modules, network, watchdog feeding, power, heartbeats, commands
//	kubelet   the Node, its Lease and its Pods, against a real kube-apiserver
//	workload  one exclusive workload: it only reports to the host that it lives
//	pod       the same in a Pod of a real node
//	pause     what holds a Pod of a real node together
//
// Init is the parent of the kubelet, and the kubelet of its workloads. A workload outlives neither
// its boot nor its Pod, but it does outlive the loss of the API server and of the kubelet, as
// containers do.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	role := "init"
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case "init":
		err = runInit()
	case "kubelet":
		err = runKubelet(len(os.Args) > 2)
	case "workload":
		var interval time.Duration
		if interval, err = time.ParseDuration(os.Args[4]); err == nil {
			err = runWorkload(os.Args[2], os.Args[3], interval)
		}
	case "pod":
		var interval time.Duration
		if interval, err = time.ParseDuration(os.Args[3]); err == nil {
			err = runInPod(os.Args[2], interval)
		}
	case "pause":
		err = runPause()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "fencelab guest %s: %v\n", role, err)
	// The end of PID 1 is a kernel panic, which resets the machine (panic= on the kernel's command
	// line).
	os.Exit(1)
}
