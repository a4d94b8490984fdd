package lab

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// TestDomainIsASystem holds a virtual machine against the contract of what a BMC
// controls.
func TestDomainIsASystem(t *testing.T) {
	if os.Getenv("FENCELAB_E2E") == "quick" || os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	l, err := vms.Open(t.Context(), vms.Options{Assets: DefaultAssets()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := &Backend{ctx: context.Background()}
	b.stream = newStream(l.Now)
	began, booted := make(map[string]int), make(chan string, 1000)
	counted := make(chan func(), 1)
	go func() {
		for {
			select {
			case e, open := <-l.Events():
				switch {
				case !open:
					return
				case e.Kind == vms.PoweredOn, e.Kind == vms.Reset:
					began[e.Host]++
				case e.Kind == vms.Kind(evidence.Heartbeat) && e.Seq == 1 && e.Process == "":
					booted <- e.Host // it hears the power button
				}
			case look := <-counted:
				look()
			}
		}
	}()
	// Real time is waited for; the steps are of the tests' making.
	wait := func(d time.Duration) { <-time.After(d) }
	number := 0
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		number++
		name := "system-" + string(rune('a'+number/26)) + string(rune('a'+number%26))
		domain, err := l.NewDomain(vms.HostConfig{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := domain.ForceOff(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if on {
			if err := domain.On(t.Context()); err != nil {
				t.Fatal(err)
			}
			for up := ""; up != name; {
				select {
				case up = <-booted:
				case <-time.After(time.Minute):
					t.Fatalf("%s did not boot", name)
				}
			}
		}
		return systemtest.Fixture{
			System: system{b, domain}, Advance: wait,
			Step: 20 * time.Millisecond, Limit: 20 * time.Second, Hold: 500 * time.Millisecond,
			Boots: func() int {
				answer := make(chan int)
				go func() { counted <- func() { answer <- began[name] } }()
				return <-answer
			},
		}
	})
}
