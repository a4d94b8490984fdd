package corpus

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Record renders the document about the pairs.
func Record(findings []Finding) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Track record

Known bugs of controllers that fence hosts, and of what they stand on: %d of them. Each is
a story in [regression](../scenarios/catalog/regression) that names its public thread. With
the mistake in our controllers it breaks the guarantee that is named here, and without it
they keep every guarantee, also in the schedule that shows the mistake.
[scenarios.md](scenarios.md#known-bugs) says how to add one. `+"`fencelab corpus`"+` tries
them all; with `+"`--table docs/track-record.md`"+` it writes this page.

The first schedule that is tried is the default one, and then each single deviation from
it. *Smallest cause* is the deviation, written as in a [plan](scenarios.md#plans). A
mistake is an overlay in the story's own file, or a change of the source beside it, which
is built first; the seconds are those of the search alone, on two cores.

| thread | story | what went wrong | breaks | mistake | schedules | seconds | smallest cause |
|---|---|---|---|---|---|---|---|
`, len(findings))
	for _, f := range findings {
		m := &f.Right.Metadata
		mistake := "overlay"
		if f.Overlaid == nil {
			mistake = "source"
		}
		cause := f.cause()
		if len(f.Cause) > 0 {
			cause = "`" + cause + "`"
		}
		fmt.Fprintf(&b, "| [%s](https://github.com/%s) | %s | %s | %s | %s | %d | %s | %s |\n", m.Upstream, strings.Replace(m.Upstream, "#", "/issues/", 1),
			m.Name, strings.ReplaceAll(strings.Join(strings.Fields(m.Description), " "), "|", `\|`), f.Breaks, mistake, f.Schedules, seconds(f.Took), cause)
	}
	return b.Bytes()
}

// seconds rounds a duration, which differs between machines.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
