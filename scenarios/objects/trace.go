package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Trace records a report's details beside the history: how objects changed, and what the processes
// had in their caches and decided. No checker sees it. It may be used concurrently; a nil Trace
// records nothing.
type Trace struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (t *Trace) add(e page.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := json.NewEncoder(&t.lines).Encode(e); err != nil {
		fmt.Fprintf(&t.lines, "{\"what\":\"error\",\"key\":%q}\n", err) // an entry is plain data: this cannot be
	}
}

// Decided records a decision of a process about a key.
func (t *Trace) Decided(at time.Duration, process, key string, facts any, action string) {
	if t == nil {
		return
	}
	known, err := json.Marshal(facts)
	if err != nil {
		known = fmt.Appendf(nil, "%q", err) // facts are plain data: this cannot be
	}
	t.add(page.Entry{At: at, What: "decided", Process: process, Key: key, Facts: known, Action: action})
}

// Ran records that a process has reconciled a key, and after which time it asked to be called
// again, [page.AtOnce], [page.Failed], or "" if at no time.
func (t *Trace) Ran(at time.Duration, process, key, again string) {
	if t != nil {
		t.add(page.Entry{At: at, What: "ran", Process: process, Key: key, Action: again})
	}
}

// Deviated records which step it is that deviates, which is taken at a time, what it does, and the
// step that it has waited for, in words.
func (t *Trace) Deviated(at time.Duration, deviation, actor, does, after string) {
	if t != nil {
		t.add(page.Entry{At: at, What: "deviated", Process: actor, Key: deviation, Action: does, After: after})
	}
}

// Forgot records that a process begins with an empty cache.
func (t *Trace) Forgot(at time.Duration, process string) {
	if t != nil {
		t.add(page.Entry{At: at, What: "forgot", Process: process})
	}
}

// Learned records what a change in the cache of a process means there.
func (t *Trace) Learned(at time.Duration, process string, names Names, kind *Kind, before, after metav1.Object) {
	if t == nil {
		return
	}
	names.budgets, names.checks = nil, nil // a cache lags behind them
	names.Changes(kind, before, after, func(e history.Event) {
		if e.Kind != history.NodeLabels && e.Kind != history.NodeAnnotations && e.Kind != history.NodeNetwork && e.Kind != history.NodeTaints {
			t.add(page.Entry{At: at, What: "learned", Process: process, Event: &e})
		}
	})
}

// Changed records a new version of an object.
func (t *Trace) Changed(at time.Duration, actor, object string, before, after metav1.Object) {
	if t == nil {
		return
	}
	e := page.Entry{At: at, What: "changed", Process: actor, Object: object}
	switch {
	case before == nil:
		e.Action = "created"
	case after == nil:
		e.Action = "deleted"
	default:
		if e.Fields = differences(before, after); len(e.Fields) == 0 {
			return
		}
	}
	t.add(e)
}

// Artifact returns the trace as a file of a report.
func (t *Trace) Artifact() play.Artifact {
	t.mu.Lock()
	defer t.mu.Unlock()
	return play.Artifact{Name: page.Trace, Data: bytes.Clone(t.lines.Bytes())}
}

// bookkeeping lists the fields that every write changes.
var bookkeeping = []string{"metadata.resourceVersion", "metadata.managedFields", "metadata.generation"}

// differences are the fields of two versions of an object that are not the same, in
// the order of their paths.
func differences(before, after metav1.Object) (found []page.Field) {
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return []page.Field{{Path: err.Error()}}
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return []page.Field{{Path: err.Error()}}
	}
	compare("", was, is, &found)
	return slices.DeleteFunc(found, func(c page.Field) bool { return slices.Contains(bookkeeping, c.Path) })
}

func compare(path string, was, is any, found *[]page.Field) {
	before, wasMap := was.(map[string]any)
	after, isMap := is.(map[string]any)
	if (wasMap || was == nil) && (isMap || is == nil) && (wasMap || isMap) && path != "metadata.managedFields" {
		names := maps.Clone(before)
		if names == nil {
			names = map[string]any{}
		}
		maps.Copy(names, after)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			inner := name
			if path != "" {
				inner = path + "." + name
			}
			compare(inner, before[name], after[name], found)
		}
		return
	}
	listBefore, wasList := was.([]any)
	listAfter, isList := is.([]any)
	if wasList && isList && len(listBefore) == len(listAfter) {
		for i := range listBefore {
			compare(fmt.Sprintf("%s[%d]", path, i), listBefore[i], listAfter[i], found)
		}
		return
	}
	if w, i := shown(was), shown(is); w != i {
		*found = append(*found, page.Field{Path: path, Was: w, Is: i})
	}
}

// longest bounds a value in a trace.
const longest = 300

// shown is a value of a field as people read it.
func shown(value any) string {
	if value == nil {
		return ""
	}
	text, ok := value.(string)
	if !ok {
		data, err := json.Marshal(value)
		if err != nil {
			return err.Error()
		}
		text = string(data)
	}
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return text
}
