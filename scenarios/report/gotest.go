package report

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"unicode"

	"github.com/fencelab/fencelab/scenarios/play"
)

// goTest is the source of a test that plays a plan.
var goTest = template.Must(template.New("").Parse(`package {{.Package}}

import (
	"testing"

	"github.com/fencelab/fencelab/fencetest"
)

// {{.Name}} plays what fencelab has found:
//
{{range .Comment}}// {{.}}
{{end}}func {{.Name}}(t *testing.T) {
	fencetest.Plan(t, {{printf "%q" .Plan}}{{if .Module}}, fencetest.With({{.Module}}){{end}}{{range .Lands}},
		fencetest.Lands({{printf "%q" .}}){{end}})
}
`))

// notInNames matches characters that are not allowed in the names of files or of Go.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Guards reports why a test of a plan that was played would guard nothing. saved is the history
// beside it.
func Guards(o *play.Outcome, saved string) error {
	if err := o.Replayed(saved); err != nil {
		return fmt.Errorf("the plan plays differently now, and a test of it would guard something else: save it from a run of today: %w", err)
	}
	if len(o.Injected.Idle) > 0 {
		return fmt.Errorf("%s: a test without it would guard nothing", o.Injected.Idle[0])
	}
	if o.Meets() == "" {
		return errors.New("the plan comes out as expected, and a test of it would fail for no mistake: write it while the mistake is there")
	}
	return nil
}

// WriteTest writes a Go test that plays the plan of a run, and the plan below testdata beside it.
// module is the Go expression of the module with its controllers, empty for fencelab's own. Neither
// file may be there yet. It returns the name of the test.
func WriteTest(o *play.Outcome, file, module string) (name string, err error) {
	if !strings.HasSuffix(file, "_test.go") {
		return "", fmt.Errorf("write the test %s: Go takes files for tests that end in _test.go", file)
	}
	dir := filepath.Dir(file)
	pkg, err := packageIn(dir)
	if err != nil {
		return "", fmt.Errorf("write the test %s: %w", file, err)
	}
	called := o.Plan.Metadata.Name + "-" + o.Plan.ID()
	plan := filepath.Join("testdata", called+".plan.txt")
	name = "Test"
	for _, word := range strings.Split(notInNames.ReplaceAllString(o.Plan.Metadata.Name, " "), " ") {
		name += title(word)
	}
	name += title(o.Plan.ID())
	comment := []string{"  " + outcomeLine(o)}
	for _, line := range deviations(o) {
		comment = append(comment, "  when "+line)
	}
	var source bytes.Buffer
	if err := goTest.Execute(&source, map[string]any{"Package": pkg, "Name": name, "Comment": comment, "Plan": filepath.ToSlash(plan), "Module": module, "Lands": Told(o)}); err != nil {
		return "", err
	}
	text, err := format.Source(source.Bytes())
	if err != nil {
		return "", fmt.Errorf("write the test %s: %w", file, err)
	}
	plan = filepath.Join(dir, plan)
	for _, path := range []string{file, plan} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("write the test %s: %s is there already: name another file, or remove it", file, path)
		}
	}
	err = os.MkdirAll(filepath.Dir(plan), 0o755)
	if err == nil {
		err = os.WriteFile(plan, o.Plan.Text(), 0o644)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("write the test %s: %w", file, err)
	}
	return name, nil
}

func title(word string) string {
	if word == "" {
		return ""
	}
	return string(unicode.ToUpper(rune(word[0]))) + word[1:]
}

// outcomeLine describes the violation that ended a run, or else its verdict and the reason.
func outcomeLine(o *play.Outcome) string {
	if v := o.Violation(); v != nil {
		return v.Invariant + ": " + v.Sentence
	}
	verdict, why := o.Verdict()
	return strings.TrimSuffix(fmt.Sprintf("%s: %s", verdict, why), ": ")
}

// packageIn is the package of the Go files in a directory, or what one would be called there.
func packageIn(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(abs, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		if !strings.HasSuffix(file, "_test.go") || !strings.HasSuffix(parsed.Name.Name, "_test") {
			return parsed.Name.Name, nil
		}
	}
	name := strings.ToLower(notInNames.ReplaceAllString(filepath.Base(abs), ""))
	if name == "" || unicode.IsDigit(rune(name[0])) {
		return "", fmt.Errorf("there is no Go package in %s, and it can't be called after the directory", dir)
	}
	return name, nil
}
