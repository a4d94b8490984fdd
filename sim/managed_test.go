package sim

import (
	"context"
	"testing"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/processtest"
)

// TestManagedProcesses runs the contract of processes on those that set up their
// controllers themselves, with a real controller of controller-runtime in each.
func TestManagedProcesses(t *testing.T) {
	processtest.Run(t, func(t *testing.T) processtest.World {
		st := open(t, nil, nil)
		t.Cleanup(func() {
			if _, err := st.b.Stop(); err != nil {
				t.Error(err)
			}
		})
		return managing{simulated{st}}
	})
}

// managing is a processtest.World of managed processes.
type managing struct{ simulated }

func (w managing) Start(t *testing.T, r controllers.Registration, replicas int) []processtest.Process {
	return w.simulated.Start(t, setsUp(r), replicas)
}

// setsUp is a registration that sets itself up with a manager.
func setsUp(r controllers.Registration) controllers.Registration {
	own := r
	r.New, r.Loops, r.Watches, r.Indexes = nil, nil, nil, nil
	r.Reads = own.Cached()
	r.Setup = func(_ context.Context, mgr ctrlmanager.Manager, _ controllers.Deps) error {
		return controllers.SetupWithManager(mgr, controllers.Selection{Registration: own})
	}
	return r
}
