// Package file reads what people write: from the bytes of a file to a Scenario, a Plan or a
// System, or to everything that is wrong with it, each with its line and column.
package file

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Bounds of a scenario file.
const (
	MaxSize  = 1 << 20 // in bytes
	maxDepth = 32
)

// Load reads a scenario file. It is strict: unknown fields, wrong types, missing fields, references
// to nothing and operations that make no sense are errors. All of them are returned at once, as
// Errors. They call the file name. A file whose matrix makes several scenarios is an error too.
//
// Settings and the rules of faults hold canonical JSON afterwards.
func Load(name string, data []byte, vocab Vocabulary) (*scenarios.Scenario, error) {
	all, err := LoadCells(name, data, vocab, nil)
	if err == nil && len(all) > 1 {
		err = fmt.Errorf("load %s: its matrix makes %d scenarios, but exactly one is needed here", name, len(all))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// LoadCells reads a scenario file as Load does, and returns what its matrix makes of it:
// a scenario for each cell. Parameters that are given a value here have no other.
func LoadCells(name string, data []byte, vocab Vocabulary, given Values) ([]*scenarios.Scenario, error) {
	doc := parse(name, data)
	loaded := doc.load(vocab, given)
	if err := doc.err(); err != nil {
		return nil, err
	}
	var all []*scenarios.Scenario
	for _, one := range loaded {
		all = append(all, one.scenario)
	}
	return all, nil
}

// LoadPlan reads a plan file, as Plan.Text writes it, with the strictness of
// Load. In addition a plan leaves nothing open: defaults are written out, and
// ranges are single values.
func LoadPlan(name string, data []byte, vocab Vocabulary) (*scenarios.Plan, error) {
	plan := new(scenarios.Plan)
	doc := parse(name, data)
	if doc.head(scenarios.KindPlan) {
		doc.decode(plan)
		v := newValidator(doc, vocab, &plan.Spec)
		v.metadata(&plan.Metadata, cellName)
		v.validate()
		v.plan(plan)
	}
	if err := doc.err(); err != nil {
		if by := savedBy.FindSubmatch(data); by != nil && string(by[1]) != version.Built() {
			err = fmt.Errorf("%w\n%s was saved by fencelab %s, and this is %s: play it with that one, or save it anew with this one", err, name, by[1], version.Built())
		}
		return nil, err
	}
	return plan, nil
}

// savedBy is the line of a plan that says which version has saved it.
var savedBy = regexp.MustCompile(`(?m)^fencelab: ([-+.\w]{1,80})$`)

// Lint returns what is allowed in a scenario file and still looks wrong. The
// error is that of Load.
func Lint(name string, data []byte, vocab Vocabulary) ([]Problem, error) {
	doc := parse(name, data)
	loaded := doc.load(vocab, nil)
	if err := doc.err(); err != nil {
		return nil, err
	}
	for _, one := range loaded {
		one.doc.lint(one.scenario, vocab)
	}
	doc.gather(loaded)
	doc.problems.sort()
	return doc.problems, nil
}

// loaded is the scenario of one cell, and the tree that it was read from.
type loaded struct {
	scenario *scenarios.Scenario
	doc      *document
	cell     string
}

// load reads the scenarios of a document. What is wrong with any is reported to it.
func (d *document) load(vocab Vocabulary, given Values) []loaded {
	if !d.head(scenarios.KindScenario) {
		return nil
	}
	if !d.varied() {
		return []loaded{{d.scenario(vocab), d, ""}}
	}
	if len(d.problems) > 0 {
		return nil // a broken parameter can't be reported in each cell
	}
	var all []loaded
	x := &expander{doc: d, used: map[string]bool{}, times: 1}
	for _, c := range d.cells(given) {
		all = append(all, loaded{doc: x.of(c), cell: c.id()})
	}
	d.unused(x.used)
	if len(d.problems) > 0 {
		return nil
	}
	for i := range all {
		one := &all[i]
		one.scenario = one.doc.scenario(vocab)
		if one.cell != "" {
			one.scenario.Metadata.Name += "." + one.cell
		}
	}
	d.gather(all)
	return all
}

// scenario reads the tree as one.
func (d *document) scenario(vocab Vocabulary) *scenarios.Scenario {
	scenario := new(scenarios.Scenario)
	d.decode(scenario)
	v := newValidator(d, vocab, &scenario.Spec)
	v.metadata(&scenario.Metadata, dnsLabel)
	v.validate()
	scenario.Spec.AddRequests(vocab.Requests)
	for i := range scenario.Spec.Controllers {
		c := &scenario.Spec.Controllers[i]
		c.Plays = cmp.Or(c.Plays, vocab.controller(c.Name).Plays)
	}
	paths := []string{scenarios.NameAt}
	for i := range scenario.Spec.Steps {
		paths = append(paths, scenarios.StepAt(i))
	}
	scenario.Lines = make(map[string]int)
	for _, path := range paths {
		if n := d.nodes[path]; n != nil {
			scenario.Lines[path] = n.Line
		}
	}
	return scenario
}

// gather takes over what is wrong in cells. What is not wrong in all of them says in which.
func (d *document) gather(cells []loaded) {
	type mistake struct {
		line, column int
		text         string
	}
	var all []Problem
	in := map[mistake][]string{}
	for _, one := range cells {
		if one.doc == d {
			continue
		}
		for _, p := range one.doc.problems {
			m := mistake{p.Line, p.Column, p.Text}
			if in[m] == nil {
				all = append(all, p)
			}
			if !slices.Contains(in[m], one.cell) { // steps that come again are wrong again
				in[m] = append(in[m], one.cell)
			}
		}
	}
	for _, p := range all {
		where := in[mistake{p.Line, p.Column, p.Text}]
		switch others := len(where) - 1; {
		case len(where) == len(cells):
		case others == 0:
			p.Text += fmt.Sprintf(" (in the cell %s)", where[0])
		default:
			p.Text += fmt.Sprintf(" (in the cell %s and %d more)", where[0], others)
		}
		d.problems = append(d.problems, p)
	}
}

// document is a parsed file: its tree, where everything is, and what is wrong
// with it.
type document struct {
	name     string
	lines    []string
	root     *yaml.Node            // nil when the file could not be parsed
	nodes    map[string]*yaml.Node // by field path
	problems Errors
}

// parse reads a file's syntax. It takes the part of YAML that means the same to
// everybody: one document; no anchors, aliases, merge keys or tags; keys that
// are text and given once.
func parse(name string, data []byte) *document {
	doc := &document{name: name, lines: []string{""}, nodes: map[string]*yaml.Node{}}
	if len(data) > MaxSize {
		doc.report(1, 1, "", fmt.Sprintf("the file has %d bytes, but a scenario has at most %d", len(data), MaxSize))
		return doc
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	doc.lines = strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	if line, column, what := badCharacter(doc.lines); what != "" {
		doc.report(line, column, "", what)
		return doc
	}
	var nodes [2]yaml.Node
	n, err := parseYAML(bytes.NewReader(data), nodes[:])
	switch {
	case err != nil:
		doc.reportSyntax(data, err)
		return doc
	case n == 0 || nodes[0].Content[0].Tag == "!!null" && nodes[0].Content[0].Value == "":
		doc.report(1, 1, "", fmt.Sprintf("the file is empty: a scenario begins with apiVersion: %s", scenarios.APIVersion))
		return doc
	case n > 1:
		doc.report(nodes[1].Line, nodes[1].Column, "", "a second document begins: a file holds one scenario")
	}
	doc.root = nodes[0].Content[0]
	doc.inspect(doc.root, "", 1)
	return doc
}

// badCharacter finds the first character that no text file holds.
func badCharacter(lines []string) (line, column int, what string) {
	for i, text := range lines {
		column := 0
		for at, r := range text {
			column++
			if _, size := utf8.DecodeRuneInString(text[at:]); r == utf8.RuneError && size == 1 {
				return i + 1, column, "the file is not UTF-8 text"
			}
			if unprintable(r) {
				return i + 1, column, fmt.Sprintf("the character %U is not allowed in a scenario", r)
			}
		}
	}
	return 0, 0, ""
}

// unprintable reports whether a character cannot be seen, has others seen in another order, or is
// one that not every reader of YAML takes: U+2028 and U+2029 end a line there and nowhere else.
func unprintable(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' || unicode.Is(unicode.Bidi_Control, r) ||
		r == '\u2028' || r == '\u2029' || r == '\ufeff' || r&0xfffe == 0xfffe
}

// parseYAML parses as many documents as there is room for and says how many
// there were.
func parseYAML(r io.Reader, nodes []yaml.Node) (n int, err error) {
	// The parser panics on a few inputs with odd comments ("internal error",
	// it says): no file may take the program down.
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("the YAML parser cannot read this: %v", bug)
		}
	}()
	decoder := yaml.NewDecoder(r)
	for n < len(nodes) {
		if err := decoder.Decode(&nodes[n]); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// drip hands out a byte at a time, so that what was taken shows how far the
// parser came.
type drip struct {
	data  []byte
	taken int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.taken == len(d.data) {
		return 0, io.EOF
	}
	p[0] = d.data[d.taken]
	d.taken++
	return 1, nil
}

// reportSyntax reports that the file is no YAML. The parser's own line is that
// of the construct that it was in, which can be the whole file, and it names no
// column: what it had read when it gave up is a better place.
func (d *document) reportSyntax(data []byte, err error) {
	reader := &drip{data: data}
	_, _ = parseYAML(reader, make([]yaml.Node, 2)) // fails as it did before
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line, column := 0, 0
	if _, scanErr := fmt.Sscanf(text, "line %d:", &line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	if reader.taken < len(data) || line < 1 || line > len(d.lines) {
		// The parser stumbled over the last character that means something.
		read := bytes.TrimRight(bytes.TrimPrefix(data[:reader.taken], []byte("\ufeff")), " \t\r\n")
		line = bytes.Count(read, []byte("\n")) + 1
		column = max(utf8.RuneCount(read[bytes.LastIndexByte(read, '\n')+1:]), 1)
	} else {
		// It ran out of file: the construct it was in says more.
		if strings.HasPrefix(text, "did not find expected") {
			line = min(line+1, len(d.lines)) // the parser, unlike the scanner, counts from 0
		}
		column = utf8.RuneCountInString(indentation(d.lines[line-1])) + 1
	}
	for i := line; i <= min(line+1, len(d.lines)); i++ {
		if tab := strings.IndexByte(indentation(d.lines[i-1]), '\t'); tab >= 0 {
			line, column, text = i, tab+1, "a tab cannot indent: use spaces"
			break
		}
	}
	line, column, text = d.clearer(line, column, text)
	d.report(line, column, "", "not YAML: "+text)
}

// clearer rephrases a parser's error in an author's words, and corrects its position where that is
// known.
func (d *document) clearer(line, column int, text string) (int, int, string) {
	if name, unset := strings.CutPrefix(text, "unknown anchor '"); unset { // the parser had read on
		name = "*" + strings.TrimSuffix(name, "' referenced")
		for i := line; i >= 1; i-- {
			if at := strings.LastIndex(d.lines[i-1], name); at >= 0 {
				line, column = i, utf8.RuneCountInString(d.lines[i-1][:at])+1
				break
			}
		}
		text = fmt.Sprintf("%s refers to nothing: aliases are not supported, write the value itself", name)
	}
	expectsMore := strings.HasPrefix(text, "did not find expected '-'") || strings.HasPrefix(text, "did not find expected key") || strings.HasPrefix(text, "mapping values are not allowed")
	if how, is := misplaced(d.lines, line); is && expectsMore {
		text, column = how, utf8.RuneCountInString(indentation(d.lines[line-1]))+1
	} else if bracket, at, is := unclosed(d.lines, line, column); is && strings.HasPrefix(text, "did not find expected ','") {
		text += fmt.Sprintf(": nothing closes the %c of line %d", bracket, at)
	}
	return line, column, text
}

func indentation(line string) string {
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// merged are the paths in which null has a meaning: to remove a field.
var merged = regexp.MustCompile(`^spec\.steps\[[0-9]+\](\.repeat\.steps\[[0-9]+\])*\.do\.patch\.merge\.`)

// inspect walks the tree, notes where every field is, and refuses what isn't
// plain data.
func (d *document) inspect(n *yaml.Node, path string, depth int) {
	d.nodes[path] = n
	at := func(n *yaml.Node, path, text string) { d.report(n.Line, n.Column, path, text) }
	switch {
	case depth > maxDepth:
		at(n, path, fmt.Sprintf("nested more than %d deep", maxDepth))
		n.Content = nil
		return
	case n.Kind == yaml.AliasNode:
		at(n, path, fmt.Sprintf("alias *%s: aliases are not supported, write the value itself", phrase.Shorten(n.Value)))
		return
	case n.Anchor != "":
		at(n, path, fmt.Sprintf("anchor &%s: anchors are not supported, leave it out", phrase.Shorten(n.Anchor)))
	case n.Style&yaml.TaggedStyle != 0:
		at(n, path, fmt.Sprintf("tag %q: tags are not supported, leave it out", phrase.Shorten(n.Tag)))
	case isNull(n) && (n.Value == "" || !merged.MatchString(path)):
		at(n, path, "has no value: write one, or leave the field out")
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if i := strings.IndexFunc(n.Value, unprintable); i >= 0 {
			r, _ := utf8.DecodeRuneInString(n.Value[i:])
			at(n, path, fmt.Sprintf("the character %U is not allowed in a scenario", r))
		}
	case yaml.MappingNode:
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case key.Kind == yaml.AliasNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
				at(key, path, "a key with an anchor, alias or tag: write it as plain text")
				continue
			case strings.ContainsFunc(key.Value, unprintable):
				at(key, path, fmt.Sprintf("the key %s has a character that is not allowed in a scenario", phrase.Quote(key.Value)))
			case key.Value == "<<": // in quotes too: Plan.Text leaves them out
				at(key, path, "merge key <<: merging is not supported, write the fields themselves")
				continue
			case key.Kind != yaml.ScalarNode || !isText(key):
				at(key, path, fmt.Sprintf("%s as a key: keys must be text", describe(key)))
				continue
			}
			field := join(path, key.Value)
			if line, twice := first[key.Value]; twice {
				text := fmt.Sprintf("%s was already given in line %d", phrase.Quote(key.Value), line)
				if strings.HasSuffix(path, "]") && n.Style&yaml.FlowStyle == 0 {
					text += "; before what begins another entry, put a dash"
				}
				at(key, field, text)
				continue
			}
			first[key.Value] = key.Line
			d.inspect(value, field, depth+1)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			d.inspect(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
	}
}

// join appends a key to a field path.
func join(path, key string) string {
	plain := key != "" && phrase.Shorten(key) == key && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
	switch {
	case !plain:
		return fmt.Sprintf("%s[%s]", path, phrase.Quote(key))
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// head checks what kind of file it is. If it is the wrong one, that is all there
// is to say about it.
func (d *document) head(kind string) bool {
	ok := d.root != nil
	for _, head := range [...]struct{ field, want string }{{"apiVersion", scenarios.APIVersion}, {"kind", kind}} {
		n := d.nodes[head.field]
		if n == nil || n.Kind != yaml.ScalarNode || !isText(n) || n.Value == head.want {
			continue
		}
		ok = false
		text := fmt.Sprintf("%s where %s is expected", phrase.Quote(n.Value), head.want)
		switch {
		case head.field == "kind" && n.Value == scenarios.KindPlan:
			text += ": a plan is played with fencelab replay"
		case head.field == "kind" && n.Value == scenarios.KindSystem:
			text += ": it says what stories are played with: name it with --system"
		case head.field == "kind" && n.Value == scenarios.KindCampaign:
			text += ": a campaign is played with fencelab campaign run"
		case head.field == "kind" && n.Value == scenarios.KindScenario:
			text += ": a scenario is played with fencelab run"
		}
		d.bad(head.field, "%s", text)
	}
	return ok
}

// within reports whether a field is, or is part of, another.
func within(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (rest == "" || whole == "" || rest[0] == '.' || rest[0] == '[')
}

// broken reports whether something is wrong with a field, with a part of it, or
// with what it is a part of.
func (d *document) broken(path string) bool {
	if len(d.problems) == maxProblems {
		return true // for all we know
	}
	for _, p := range d.problems {
		if p.Path != "" && (within(p.Path, path) || within(path, p.Path)) {
			return true
		}
	}
	return false
}

// bad reports something wrong with a field. A field that is not there is
// reported where it would be.
func (d *document) bad(path, format string, args ...any) {
	n, place := d.nodes[path], path
	for n == nil && place != "" {
		place = place[:max(strings.LastIndexAny(place, ".["), 0)]
		n = d.nodes[place]
	}
	if n == nil {
		n = &yaml.Node{Line: 1, Column: 1}
	}
	d.report(n.Line, n.Column, path, fmt.Sprintf(format, args...))
}

// maxProblems bounds the work on a file that is nothing but mistakes.
const maxProblems = 1000

func (d *document) report(line, column int, path, text string) {
	// The parser places what is missing at the end behind the last line.
	line = min(max(line, 1), len(d.lines))
	if len(d.problems) == maxProblems || slices.ContainsFunc(d.problems, func(p Problem) bool {
		return p.Line == line && p.Column == column && p.Path == path // the first thing said is the clearest
	}) {
		return
	}
	d.problems = append(d.problems, Problem{File: d.name, Line: line, Column: column, Path: path, Text: text, excerpt: d.lines[line-1]})
}

func (d *document) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	d.problems.sort()
	return d.problems
}
