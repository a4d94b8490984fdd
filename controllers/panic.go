package controllers

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// PanicError is a panic of a controller.
type PanicError struct {
	Value any
	// Where is the controller's innermost own function on the way to the panic, with its file and
	// line.
	Where string
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Recovered describes a panic. It is called by the function that recovers it.
func Recovered(value any) *PanicError { return &PanicError{value, origin()} }

// platforms are prefixes of the packages beneath a controller. A controller's mistake may show up
// in them but is not made there.
var platforms = []string{"k8s.io/", "sigs.k8s.io/", "github.com/fencelab/fencelab/sim", "github.com/fencelab/fencelab/controllers."}

// origin returns the controller's innermost function on the way to a panic, with its file and
// line.
func origin() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	first, panics := "", false
	for {
		frame, more := frames.Next()
		domain, _, _ := strings.Cut(frame.Function, "/")
		switch {
		case strings.HasPrefix(frame.Function, "runtime."):
			panics = panics || frame.Function == "runtime.gopanic"
		case panics:
			here := fmt.Sprintf("%s, %s:%d", short(frame.Function), filepath.Base(frame.File), frame.Line)
			if first == "" {
				// for example of the standard library: the answer if no better frame comes
				first = here
			}
			if !platform(frame.Function) && (strings.Contains(domain, ".") || strings.HasPrefix(frame.Function, "main.")) {
				return here
			}
		}
		if !more {
			return first
		}
	}
}

// frame is a function in a printed trace, with the line of its file that follows.
var frame = regexp.MustCompile(`(?m)^\s*([^\s()]+(?:\(\*[^()]+\)[^\s()]*)?)\(.*\)\n\s+(\S+):(\d+)`)

// OriginIn returns the controller's innermost function on the way to a panic, from a trace as Go
// prints it, with its file and line; "" if the text has none.
func OriginIn(trace string) string {
	if _, after, ok := strings.Cut(trace, "\npanic("); ok {
		_, trace, _ = strings.Cut(after, "\n")
	}
	first := ""
	for _, f := range frame.FindAllStringSubmatch(trace, -1) {
		function, here := f[1], fmt.Sprintf("%s, %s:%s", short(f[1]), filepath.Base(f[2]), f[3])
		domain, _, _ := strings.Cut(function, "/")
		switch {
		case strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "runtime/"):
		case !platform(function) && (strings.Contains(domain, ".") || strings.HasPrefix(function, "main.")):
			return here
		case first == "":
			first = here
		}
	}
	return first
}

func platform(function string) bool {
	for _, prefix := range platforms {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// short returns the name of a function without the path of its package.
func short(function string) string { return function[strings.LastIndexByte(function, '/')+1:] }
