package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/controllers"
)

// complaints finds failures in the log of a program in Go: panics, by the runtime or by
// controller-runtime, and errors that reconciles return, by the latter. In the logs of other
// programs it finds nothing.
type complaints struct {
	file   string
	offset int64 // of what was not read yet
	// rest is input that may go on: a line without its end, or a trace of a panic.
	rest []byte
	told func(about string, err error)
}

// reading is how often a log is looked at.
const reading = 200 * time.Millisecond

// follow reads a log from an offset on until it is over, and then once more.
func (c *complaints) follow(over <-chan struct{}) {
	tick := time.NewTicker(reading)
	defer tick.Stop()
	for {
		select {
		case <-over:
			c.read()
			c.take(len(c.rest))
			return
		case <-tick.C:
			c.read()
		}
	}
}

// read reports the failures in what was logged since the last call. If the trace of a panic begins
// there, it may still be incomplete, and read leaves it to the next call.
func (c *complaints) read() {
	f, err := os.Open(c.file)
	if err != nil {
		return
	}
	defer f.Close()
	known := bytes.LastIndexByte(c.rest, '\n') + 1 // a line that wasn't whole is seen only now
	fresh, err := io.ReadAll(io.NewSectionReader(f, c.offset, math.MaxInt64-c.offset))
	if err != nil {
		return // what comes next time begins where this did
	}
	c.offset += int64(len(fresh))
	c.rest = append(c.rest, fresh...)
	whole := bytes.LastIndexByte(c.rest, '\n') + 1
	if i := panicked.FindIndex(c.rest[known:whole]); i != nil {
		whole = known + i[0]
	}
	c.take(whole)
}

// panicked matches lines that begin the trace of a panic.
var panicked = regexp.MustCompile(`(?m)^(panic: |fatal error: |.*"Observed a panic")`)

// take removes the first n bytes of the rest, and reports the failures in them.
func (c *complaints) take(n int) {
	text := string(c.rest[:n])
	c.rest = append(c.rest[:0], c.rest[n:]...)
	for len(text) > 0 {
		line, after, _ := strings.Cut(text, "\n")
		text = after
		about, err := understood(line, after)
		if err == nil {
			continue
		}
		c.told(about, err)
		if p := (*controllers.PanicError)(nil); errors.As(err, &p) && strings.HasPrefix(line, "panic: ") {
			return // the program is over, and what follows is the trace
		}
	}
}

// logged is a line of controller-runtime's, as zap writes it.
type logged struct {
	Message string `json:"msg"`
	Name    string `json:"name"`
	Error   string `json:"error"`
	Panic   string `json:"panic"`
}

// understood returns the failure in a line, and of which object; trace is the text that follows
// the line.
func understood(line, trace string) (about string, err error) {
	if value, ok := strings.CutPrefix(line, "panic: "); ok {
		return "", &controllers.PanicError{Value: strings.TrimSuffix(value, " [recovered]"), Where: controllers.OriginIn(trace)}
	}
	if value, ok := strings.CutPrefix(line, "fatal error: "); ok {
		return "", &controllers.PanicError{Value: value, Where: controllers.OriginIn(trace)}
	}
	var l logged
	if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &l) == nil {
		trace = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(line)
	} else {
		l = logged{Message: quoted(message, line), Name: quoted(name, line), Error: quoted(failure, line), Panic: quoted(value, line)}
	}
	switch l.Message {
	case "Observed a panic":
		return l.Name, &controllers.PanicError{Value: l.Panic, Where: controllers.OriginIn(trace)}
	case "Reconciler error":
		if strings.HasPrefix(l.Error, "panic: ") {
			return "", nil // which was observed
		}
		return l.Name, errors.New(l.Error)
	}
	return "", nil
}

// What klog writes of them.
var (
	message = regexp.MustCompile(`^[EF]\d{4} [^\]]*\] ("(?:[^"\\]|\\.)*")`)
	name    = regexp.MustCompile(` name=("(?:[^"\\]|\\.)*")`)
	failure = regexp.MustCompile(` err=("(?:[^"\\]|\\.)*")`)
	value   = regexp.MustCompile(` panic=("(?:[^"\\]|\\.)*")`)
)

func quoted(what *regexp.Regexp, line string) string {
	if found := what.FindStringSubmatch(line); found != nil {
		if text, err := strconv.Unquote(found[1]); err == nil {
			return text
		}
	}
	return ""
}
