package kept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
)

// Bare is the choice of no controllers but the stand-ins for those of Kubernetes: whoever asks for
// the lab runs others.
const Bare = "none"

// RunsControllers is the part of a lab that says how it runs controllers.
const RunsControllers = "controllers"

// Job describes the lab to make.
type Job struct {
	// Plan is the text of the plan whose topology it has, and whose controllers.
	Plan []byte `json:"plan"`
	// Parts maps the flag of each of [lab.Parts] to the choice. That of the controllers may also
	// be Bare.
	Parts map[string]string `json:"parts"`
	// IronicEndpoint, IronicImage and Kubeconfig become the fields of lab.Options.
	IronicEndpoint string          `json:"ironicEndpoint,omitempty"`
	IronicImage    scenarios.Image `json:"ironicImage,omitempty"`
	Kubeconfig     string          `json:"kubeconfig,omitempty"`
}

// made names the parts that the lab has.
func (j *Job) made() string {
	var parts []string
	for _, part := range lab.Parts {
		value := j.Parts[part.Flag]
		if part.Flag == "cluster" {
			value = j.options(nil).ControlPlane()
		}
		parts = append(parts, part.Flag+" "+value)
	}
	return strings.Join(parts, ", ")
}

func (j *Job) options(log io.Writer) lab.Options {
	o := lab.Options{Log: log, Kept: true, IronicEndpoint: j.IronicEndpoint, IronicImage: j.IronicImage, Kubeconfig: j.Kubeconfig}
	for flag, value := range j.Parts {
		o.Choose(flag, value)
	}
	return o
}

// topology is the plan without its story, and without what is not to run.
func (j *Job) topology(plan *scenarios.Plan) *scenarios.Plan {
	bare := plan.With(nil)
	bare.Spec.Steps = nil
	if j.Parts[RunsControllers] == Bare {
		set := controllers.Default()
		bare.Spec.Controllers = slices.DeleteFunc(slices.Clone(plan.Spec.Controllers), func(c scenarios.Controller) bool {
			r, err := set.Lookup(c.Name)
			return err != nil || !r.StandIn()
		})
	}
	return bare
}

// Failure is why a lab was not made, as its process said it.
type Failure struct {
	Text string
	Code int // the exit code that it leads to
}

func (f *Failure) Error() string { return f.Text }

// Up makes a lab that outlives this process, and calls say with each step; arguments call this
// program with the command that runs [Keep]. If it is interrupted, nothing is left.
func Up(ctx context.Context, job Job, say func(string), arguments ...string) (*Status, error) {
	cmd := exec.Command("/proc/self/exe", arguments...)
	cmd.Args[0] = "fencelab-lab"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it stays when the terminal goes
	trace, err := os.CreateTemp("", "fencelab-*")
	if err != nil {
		return nil, fmt.Errorf("start the process of a lab: %w", err)
	}
	defer trace.Close()
	if err := os.Remove(trace.Name()); err != nil {
		return nil, fmt.Errorf("start the process of a lab: %w", err)
	}
	cmd.Stderr = trace
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the process of a lab: %w", err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the process of a lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process of a lab: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { orders.Close() }) // then it ends
	defer stop()
	if err := json.NewEncoder(orders).Encode(job); err != nil {
		say("the lab's process does not respond: " + err.Error()) // why, it says itself
	}
	var status *Status
	var failure *Failure
	for messages := json.NewDecoder(said); ; {
		var m message
		if err := messages.Decode(&m); err != nil {
			break // it has nothing more to say
		}
		switch {
		case m.Error != nil:
			failure = &Failure{m.Error.Text, m.Error.Code}
		case m.Status != nil:
			status = m.Status
			if err := json.NewEncoder(orders).Encode(stay); err != nil {
				say("the lab's process does not respond: " + err.Error())
			}
		default:
			say(m.Say)
		}
	}
	switch {
	case ctx.Err() != nil && failure != nil:
		return nil, errors.Join(context.Cause(ctx), cmd.Wait())
	case failure != nil:
		_ = cmd.Wait() // its exit code says less
		return nil, failure
	case status != nil:
		return status, cmd.Process.Release()
	}
	err = cmd.Wait()
	text := make([]byte, 4000)
	n, readErr := trace.ReadAt(text, 0)
	if !errors.Is(readErr, io.EOF) {
		err = errors.Join(err, readErr)
	}
	return nil, fmt.Errorf("create a lab: its process has ended (%v): %s", err, strings.TrimSpace(string(text[:n])))
}
