package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/controllers"
)

const trace = `goroutine 187 [running]:
runtime/debug.Stack()
	/usr/lib/go/src/runtime/debug/stack.go:26 +0x5e
k8s.io/apimachinery/pkg/util/runtime.logPanic({0x1, 0x2}, {0x3, 0x4})
	/go/pkg/mod/k8s.io/apimachinery/pkg/util/runtime/runtime.go:132 +0xbc
panic({0x15b7600?, 0x1a1f0e0?})
	/usr/lib/go/src/runtime/panic.go:783 +0x132
example.com/fencer/controllers.(*Reconciler).fence(...)
	/home/me/fencer/controllers/fence.go:57
example.com/fencer/controllers.(*Reconciler).Reconcile(0xc0003aa000, {0x1, 0x2}, {{{0xc000, 0x7}}})
	/home/me/fencer/controllers/fence.go:31 +0x4e
sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller).Reconcile(0x1)
	/go/pkg/mod/sigs.k8s.io/controller-runtime/pkg/internal/controller/controller.go:216 +0x172
`

// TestComplaints: what logs of several kinds say, however they are cut into pieces.
func TestComplaints(t *testing.T) {
	inJSON := strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(trace)
	indented := "\t" + strings.ReplaceAll(strings.TrimSpace(trace), "\n", "\n\t") + "\n >\n"
	where := "controllers.(*Reconciler).fence, fence.go:57"
	for name, tc := range map[string]struct {
		log  string
		want []string
	}{
		"nothing": {`{"level":"info","msg":"Starting workers"}` + "\nI1127 17:00:00.000000 1 x.go:1] \"ok\" err=\"no\"\nan error\n", nil},
		"controller-runtime, by zap": {`{"level":"error","ts":"x","msg":"Observed a panic","controller":"fencer","name":"worker-1","panic":"assignment to entry in nil map","stacktrace":"` + inJSON + `"}
{"level":"error","msg":"Reconciler error","name":"worker-1","error":"panic: assignment to entry in nil map [recovered]"}
{"level":"error","msg":"Reconciler error","name":"worker-1","error":"fence worker-1: no BMC"}
`, []string{"worker-1 panicked: assignment to entry in nil map in " + where, "worker-1: fence worker-1: no BMC"}},
		"controller-runtime, by klog": {`E1127 17:00:00.000000       1 panic.go:262] "Observed a panic" controller="fencer" name="worker-1" panic="say \"no\"" stacktrace=<
` + indented + `E1127 17:00:00.000000       1 controller.go:347] "Reconciler error" err="fence worker-1: no BMC" controller="fencer" name="worker-1"
`, []string{`worker-1 panicked: say "no" in ` + where, "worker-1: fence worker-1: no BMC"}},
		"the runtime":        {"panic: boom\n\n" + trace + "exit status 2\n", []string{" panicked: boom in " + where}},
		"two errors at once": {"fatal error: concurrent map writes\n\n" + trace, []string{" panicked: concurrent map writes in " + where}},
		"no trace":           {"panic: boom\n", []string{" panicked: boom in "}},
	} {
		for _, piece := range []int{len(tc.log), len(tc.log)/2 + 1, 7} {
			t.Run(fmt.Sprintf("%s in pieces of %d", name, piece), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "log")
				var got []string
				c := complaints{file: file, told: func(about string, err error) {
					if p := (*controllers.PanicError)(nil); errors.As(err, &p) {
						got = append(got, fmt.Sprintf("%s panicked: %v in %s", about, p.Value, p.Where))
						return
					}
					got = append(got, about+": "+err.Error())
				}}
				for part := range slices.Chunk([]byte(tc.log), piece) {
					f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
					if err == nil {
						_, err = f.Write(part)
					}
					if err == nil {
						err = f.Close()
					}
					if err != nil {
						t.Fatal(err)
					}
					if piece > 7 { // which come faster than a log is read
						c.read()
					}
				}
				over := make(chan struct{})
				close(over)
				c.follow(over)
				if !slices.Equal(got, tc.want) {
					t.Errorf("heard %q, want %q", got, tc.want)
				}
			})
		}
	}
}
