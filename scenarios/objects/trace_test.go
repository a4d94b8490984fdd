package objects

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

// TestTrace: a line says which fields of an object are different now, and a write that
// changes nothing that matters leaves none.
func TestTrace(t *testing.T) {
	before := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "w", ResourceVersion: "1", Annotations: map[string]string{"a": "1", "b": "2"}}}
	after := before.DeepCopy()
	after.ResourceVersion, after.Annotations, after.Spec.Online = "2", map[string]string{"a": "3", "c": strings.Repeat("x", 2*longest)}, true
	node, err := KindsOf(controllers.Default()).Of(&corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var trace Trace
	trace.Changed(time.Second, "user", "BareMetalHost/w", before, after)
	untouched := before.DeepCopy()
	untouched.ResourceVersion = "3"
	trace.Changed(time.Second, "user", "BareMetalHost/w", before, untouched)
	trace.Changed(time.Second, "user", "BareMetalHost/w", before, nil)
	trace.Learned(2*time.Second, "reboot", Names{}, node, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w"}})
	trace.Decided(3*time.Second, "reboot", "w", struct {
		On bool `json:"on"`
	}{true}, "PowerOff")
	want := `{"at":1000000000,"what":"changed","process":"user","object":"BareMetalHost/w","fields":[` +
		`{"path":"metadata.annotations.a","was":"1","is":"3"},{"path":"metadata.annotations.b","was":"2"},` +
		`{"path":"metadata.annotations.c","is":"` + strings.Repeat("x", longest) + `..."},{"path":"spec.online","was":"false","is":"true"}]}
{"at":1000000000,"what":"changed","process":"user","action":"deleted","object":"BareMetalHost/w"}
{"at":2000000000,"what":"learned","process":"reboot","event":{"seq":0,"at":0,"kind":"node-created","host":"w","object":"Node/w"}}
{"at":3000000000,"what":"decided","process":"reboot","key":"w","facts":{"on":true},"action":"PowerOff"}
`
	if got := string(trace.Artifact().Data); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
	var none *Trace
	none.Decided(0, "", "", nil, "")
	none.Changed(0, "", "", before, after)
	none.Learned(0, "", Names{}, node, before, after)
	none.Forgot(0, "")
}
