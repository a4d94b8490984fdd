package teamfencer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/scenarios/report"
)

// mistaken is the fencer with a mistake: what its Reconcile does is passed through wrong.
func mistaken(wrong func(d controllers.Deps, fence *Fencer) reconcile.Func) controllers.Module {
	m := Module(0)
	m.Controllers[0].New = func(d controllers.Deps) (reconcile.Reconciler, error) {
		return wrong(d, &Fencer{Client: d.Client, Live: d.Live, Clock: d.Clock}), nil
	}
	return m
}

// mistakes are such as people make, and what the first lines of a report say of each.
var mistakes = []struct {
	name  string
	wrong func(d controllers.Deps, fence *Fencer) reconcile.Func
	// says holds parts of the first lines, each in one of them.
	says []string
}{
	{"panics: a map is nil", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		var seen map[string]bool
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			seen[r.Name] = true
			return fence.Reconcile(ctx, r)
		}
	}, []string{"VIOLATED", "no-panics: fencer panicked: assignment to entry in nil map", "mistakes_test.go:"}},
	{"forgets to be called again", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			_, err := fence.Reconcile(ctx, r)
			return reconcile.Result{}, err
		}
	}, []string{"UNKNOWN", "fencer last ran at ", "and nothing is due: it waits for an event"}},
	{"returns an error", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		return func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, errors.New("no credentials for the BMC")
		}
	}, []string{"UNKNOWN", "fencer has failed ", "no credentials for the BMC"}},
	{"reads what it doesn't watch", func(d controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var pods corev1.PodList
			if err := d.Client.List(ctx, &pods); err != nil {
				return reconcile.Result{}, fmt.Errorf("list the Pods: %w", err)
			}
			return fence.Reconcile(ctx, r)
		}
	}, []string{"UNKNOWN", "add it to Reads"}},
	{"waits by the clock of the machine", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		began := time.Now()
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if time.Since(began) < time.Hour {
				return reconcile.Result{RequeueAfter: time.Second}, nil
			}
			return fence.Reconcile(ctx, r)
		}
	}, []string{"UNKNOWN", "fencer has run ", "and has changed nothing; it asks to run again, as if it waited for a time"}},
	{"sleeps", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			time.Sleep(300 * time.Millisecond)
			return fence.Reconcile(ctx, r)
		}
	}, []string{"note: fencer has kept the simulator waiting for more than 200ms"}},
	{"never rests", func(_ controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			_, err := fence.Reconcile(ctx, r)
			return reconcile.Result{RequeueAfter: time.Nanosecond}, err
		}
	}, []string{"note: fencer asked 100 times in a row to run again about worker-1"}},
	{"gives up waiting for the power-off", func(d controllers.Deps, fence *Fencer) reconcile.Func {
		fence.GiveUp = time.Millisecond
		return fence.Reconcile
	}, []string{"VIOLATED", "fenced-before-release: the Node of worker-1 was deleted"}},
	{"forgets its request before the host may boot again", func(d controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			result, err := fence.Reconcile(ctx, r)
			var request FenceRequest
			if err == nil && d.Live.Get(ctx, r.NamespacedName, &request) == nil && request.Status.NodeDeleted {
				err = d.Client.Delete(ctx, &request)
			}
			return result, client.IgnoreNotFound(err)
		}
	}, []string{"UNKNOWN", "step 5 (the host is back)", "fencer last ran at ", "and nothing is due"}},
	{"compares times of the API with the clock of the machine", func(d controllers.Deps, fence *Fencer) reconcile.Func {
		return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var request FenceRequest
			if d.Live.Get(ctx, r.NamespacedName, &request) == nil && time.Since(request.CreationTimestamp.Time) > time.Minute {
				fence.GiveUp = time.Nanosecond
			}
			return fence.Reconcile(ctx, r)
		}
	}, []string{"VIOLATED", "fenced-before-release: the Node of worker-1 was deleted"}},
}

// firstLines is how many lines of a report are looked at.
const firstLines = 8

// TestMistakes: the first lines of a report name the cause.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			o := fencetest.Play(t, "story.yaml", fencetest.With(mistaken(m.wrong)))[0]
			verdict, _ := o.Verdict()
			text := strings.ToUpper(string(verdict)) + "\n" + report.Brief(o, "", "")
			lines := strings.Split(text, "\n")
			text = strings.Join(lines[:min(firstLines, len(lines))], "\n")
			for _, want := range m.says {
				if !strings.Contains(text, want) {
					t.Errorf("the first lines don't say %q:\n%s", want, text)
				}
			}
			t.Log(text)
		})
	}
}

// TestMistakesAreDocumented: the page that lists them has each.
func TestMistakesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../reports.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		if !strings.Contains(string(page), "\n| "+m.name+" | ") {
			t.Errorf("docs/reports.md has no row for: %s", m.name)
		}
	}
}
