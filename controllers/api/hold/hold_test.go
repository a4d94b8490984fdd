package hold

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/controllers/api"
)

var key = NewKey(api.RemediationRebootKey)

// epoch is when the tests begin.
var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func nodeOf(boot string) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}}}
}

// TestOutdated: an answer is too old when a boot may have come between the Off and the action that
// rests on it. Each row is one way to know so, or none.
func TestOutdated(t *testing.T) {
	const within = 5 * time.Second
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	request := `{"boot":"b1","at":"2025-01-01T00:00:10.000000Z"}`
	for name, c := range map[string]struct {
		content string
		node    *corev1.Node
		looks   []time.Duration // when readings that found the content began
		before  []time.Duration // when readings that did not began
		now     time.Duration
		want    bool
	}{
		"no request":                             {content: "", node: nodeOf("b2"), now: time.Hour},
		"young":                                  {content: request, node: nodeOf("b1"), looks: []time.Duration{12 * time.Second}, now: 14 * time.Second},
		"another boot":                           {content: request, node: nodeOf("b2"), looks: []time.Duration{12 * time.Second}, now: 14 * time.Second, want: true},
		"no Node tells of a boot":                {content: request, looks: []time.Duration{12 * time.Second}, now: 14 * time.Second},
		"old by its own word, in a young life":   {content: request, node: nodeOf("b1"), looks: []time.Duration{15 * time.Second}, now: 15 * time.Second, want: true},
		"old by its own word, and no Node":       {content: request, looks: []time.Duration{15 * time.Second}, now: 15 * time.Second, want: true},
		"old by the reading that lacked it":      {content: `{"boot":"b1"}`, node: nodeOf("b1"), before: []time.Duration{3 * time.Second}, looks: []time.Duration{6 * time.Second}, now: 8 * time.Second, want: true},
		"young since the reading that lacked it": {content: `{"boot":"b1"}`, node: nodeOf("b1"), before: []time.Duration{4 * time.Second}, looks: []time.Duration{6 * time.Second}, now: 8 * time.Second},
		"found at the start, and old by now":     {content: `{"boot":"b1"}`, node: nodeOf("b1"), looks: []time.Duration{3 * time.Second, 7 * time.Second}, now: 8 * time.Second, want: true},
		"never looked at":                        {content: `{"boot":"b1"}`, node: nodeOf("b1"), now: 8 * time.Second},
		"somebody else's words":                  {content: `now, please`, node: nodeOf("b1"), now: 8 * time.Second, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			var age Age
			for _, d := range c.before {
				age.Look("", at(d))
			}
			for _, d := range c.looks {
				age.Look(c.content, at(d))
			}
			if got := age.Outdated(c.content, c.node, at(c.now), within); got != c.want {
				t.Errorf("outdated is %v, want %v", got, c.want)
			}
		})
	}
}

// TestAnswered: only the answer that names this very content counts.
func TestAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		annotations, answers map[string]string
		want                 bool
	}{
		"answered":                  {map[string]string{key.Annotation(): "x"}, map[string]string{key.name: api.RequestID("x")}, true},
		"nobody asked":              {nil, map[string]string{key.name: api.RequestID("")}, false},
		"not yet":                   {map[string]string{key.Annotation(): "x"}, nil, false},
		"the request before":        {map[string]string{key.Annotation(): "x"}, map[string]string{key.name: api.RequestID("w")}, false},
		"another client's":          {map[string]string{key.Annotation(): "x"}, map[string]string{"other": api.RequestID("x")}, false},
		"asked by another's key":    {map[string]string{api.RebootAnnotation + "/other": "x"}, map[string]string{key.name: api.RequestID("x")}, false},
		"asked in the plain form":   {map[string]string{api.RebootAnnotation: "x"}, map[string]string{key.name: api.RequestID("x")}, false},
		"a content that is nothing": {map[string]string{key.Annotation(): ""}, map[string]string{key.name: api.RequestID("")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			host.Status.Provisioning.HeldOffFor = c.answers
			if got := key.Answered(host); got != c.want {
				t.Errorf("answered is %v, want %v", got, c.want)
			}
		})
	}
}

// TestRequestsDiffer: a request that is renewed for the same host, in the same moment and for the
// same boot, has other content.
func TestRequestsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, version := range []string{"7", "8"} {
		host := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		patch, err := key.Ask(host, nodeOf("b1"), Request{Mode: api.RebootHard, Machine: types.UID("m"), At: metav1.NewMicroTime(epoch)})
		if err != nil {
			t.Fatal(err)
		}
		data, err := patch.Data(host)
		if err != nil {
			t.Fatal(err)
		}
		var asked api.BareMetalHost
		if err := json.Unmarshal(data, &asked); err != nil {
			t.Fatal(err)
		}
		seen[key.Content(&asked)] = true
	}
	if len(seen) != 2 || seen[""] {
		t.Errorf("two requests are one: %v", seen)
	}
}
