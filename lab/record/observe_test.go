package record

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// ending is an API server whose watches of BareMetalHosts each deliver one version, and then end.
type ending struct {
	client.WithWatch
	from  []string // the versions that were asked for
	tells []watch.Event
}

func (e *ending) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (e *ending) Watch(_ context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	if _, hosts := list.(*api.BareMetalHostList); !hosts {
		return w, nil
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	e.from = append(e.from, asked.Raw.ResourceVersion)
	if len(e.tells) == 0 {
		return nil, errors.New("it is over")
	}
	w.Action(e.tells[0].Type, e.tells[0].Object)
	e.tells = e.tells[1:]
	w.Stop()
	return w, nil
}

// TestWatchGoesOn: a watch that ends, as those of a kind do when its definition is replaced, is
// followed by one from the last version on. One that has forgotten that version leaves no verdict.
func TestWatchGoesOn(t *testing.T) {
	version := func(v string, on bool) watch.Event {
		h := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "1", ResourceVersion: v}}
		h.Status.PoweredOn = on
		return watch.Event{Type: watch.Modified, Object: h}
	}
	expired := apierrors.NewResourceExpired("too old").Status()
	for name, c := range map[string]struct {
		tells []watch.Event
		from  string
		why   string
	}{
		"goes on":   {[]watch.Event{version("5", true), version("7", false)}, "|5|7", "it is over"},
		"forgotten": {[]watch.Event{version("5", true), {Type: watch.Error, Object: &expired}}, "|5", "ended: too old"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &ending{tells: c.tells}
			ctx, cancel := context.WithCancel(t.Context())
			r := New(wall.Clock().Now, objects.KindsOf(controllers.Default()), objects.Names{}, nil)
			if err := r.Watch(ctx, server); err != nil {
				t.Fatal(err)
			}
			var said []string
			_, err := r.Advance(t.Context(), r.Since()+time.Minute, func(e history.Event) bool {
				said = append(said, string(e.Kind))
				return false
			})
			cancel()
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the run ended with %v (%v), want it to say %q", err, said, c.why)
			}
			if from := strings.Join(server.from, "|"); from != c.from {
				t.Errorf("watched from %s, want %s", from, c.from)
			}
		})
	}
}
