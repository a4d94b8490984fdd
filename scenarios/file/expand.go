package file

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"go.yaml.in/yaml/v3"
)

// maxRounds bounds how often steps are repeated, those within each other included.
const maxRounds = 100

// round is the counter's name in a Repeat by times.
const round = "round"

var reference = regexp.MustCompile(`\$\(([^()]*)\)`)

// expander makes the tree of one cell: parameters have their values, and steps that
// are repeated stand there as often as they come. Every node keeps its place in the
// file. What is wrong is reported to the document, and the same in every cell.
type expander struct {
	doc *document
	// used are the parameters that were referred to.
	used map[string]bool
	// times is how often the steps come that are being copied.
	times int
}

// varied reports whether there is anything to expand.
func (d *document) varied() bool {
	if d.nodes["parameters"] != nil || d.nodes["matrix"] != nil {
		return true
	}
	if d.nodes[workersPath] != nil {
		return true
	}
	for i := 0; d.nodes[stepPath(i)] != nil; i++ {
		if d.nodes[stepPath(i)+".repeat"] != nil {
			return true
		}
	}
	return false
}

func stepPath(i int) string { return scenarios.StepAt(i) }

// of makes a document of one cell.
func (x *expander) of(c cell) *document {
	d := &document{name: x.doc.name, lines: x.doc.lines, nodes: map[string]*yaml.Node{}}
	values := c.values
	if x.doc.nodes["parameters"] == nil {
		values = nil // then a $( is nothing but that
	}
	d.root = x.node(x.doc.root, "", values)
	d.inspect(d.root, "", 1)
	return d
}

// open are the fields in which references are looked for.
func open(path string) bool { return within(path, "spec") || path == "metadata.description" }

// node copies a node and all below it.
func (x *expander) node(n *yaml.Node, path string, values map[string]any) *yaml.Node {
	made := *n
	made.Content = nil
	switch n.Kind {
	case yaml.ScalarNode:
		if values != nil && open(path) {
			return x.scalar(n, path, values)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, at := n.Content[i], join(path, n.Content[i].Value)
			if values != nil && open(path) {
				key = x.scalar(key, at, values)
				key.Tag = "!!str"
			}
			value := x.node(n.Content[i+1], at, values)
			if at == workersPath {
				key = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "hosts", Line: key.Line, Column: key.Column}
				value = x.workers(value)
			}
			made.Content = append(made.Content, key, value)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			if repeated := x.repeated(item, at, values); repeated != nil {
				made.Content = append(made.Content, repeated...)
				continue
			}
			made.Content = append(made.Content, x.node(item, at, values))
		}
	}
	return &made
}

// workersPath is where hosts are that are all alike.
const workersPath = "spec.topology.workers"

// maxWorkers bounds their number.
const maxWorkers = 50

// workers are hosts one by one.
func (x *expander) workers(n *yaml.Node) *yaml.Node {
	hosts := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line, Column: n.Column}
	if x.doc.nodes["spec.topology.hosts"] != nil {
		x.doc.bad(workersPath, "cannot be combined with hosts: put all hosts into one of the two")
	}
	var all scenarios.Workers
	decoder{doc: x.doc, strict: true}.value(n, reflect.ValueOf(&all).Elem(), workersPath)
	if x.doc.broken(workersPath) {
		return hosts
	}
	if all.Count < 1 || all.Count > maxWorkers {
		x.doc.bad(workersPath+".count", "%d: use 1 to %d", all.Count, maxWorkers)
		return hosts
	}
	text := func(s string) *yaml.Node { return nodeOf(s, n) }
	for i := range all.Count {
		host := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}
		host.Content = append(host.Content, text("name"), text(fmt.Sprintf("worker-%d", i+1)))
		if all.Watchdog > 0 {
			host.Content = append(host.Content, text("watchdog"), text(time.Duration(all.Watchdog).String()))
		}
		hosts.Content = append(hosts.Content, host)
	}
	return hosts
}

// scalar puts values into a scalar. One that is a reference and nothing else becomes the
// value, whatever its type; in quotes it is a text.
func (x *expander) scalar(n *yaml.Node, path string, values map[string]any) *yaml.Node {
	if !strings.Contains(n.Value, "$(") {
		made := *n
		return &made
	}
	bad := func(format string, args ...any) { x.doc.report(n.Line, n.Column, path, fmt.Sprintf(format, args...)) }
	found := reference.FindAllStringSubmatch(n.Value, -1)
	if len(found) != strings.Count(n.Value, "$(") {
		bad("a reference is written $(NAME), but the ) is missing")
	}
	for _, match := range found {
		if _, ok := values[match[1]]; !ok {
			bad("%s", unknown("parameter", match[1], slices.Sorted(maps.Keys(values))))
			continue
		}
		x.used[match[1]] = true
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 && len(found) == 1 && found[0][0] == n.Value {
		return nodeOf(values[found[0][1]], n)
	}
	made := *n
	made.Tag = "!!str"
	made.Value = reference.ReplaceAllStringFunc(n.Value, func(match string) string { return textOf(values[match[2:len(match)-1]]) })
	return &made
}

// repeatable are the lists of steps: those of the story, and those that are repeated.
var repeatable = regexp.MustCompile(`^spec\.steps\[[0-9]+\](\.repeat\.steps\[[0-9]+\])*$`)

// repeated are the steps that a step stands for; nil if it is a step itself.
func (x *expander) repeated(item *yaml.Node, path string, values map[string]any) []*yaml.Node {
	at := path + ".repeat"
	n := x.doc.nodes[at]
	if n == nil || !repeatable.MatchString(path) {
		return nil
	}
	if len(item.Content) > 2 {
		x.doc.bad(at, "must be alone: move what is beside it into its steps")
	}
	steps := x.doc.nodes[at+".steps"]
	if n.Kind != yaml.MappingNode || steps == nil || steps.Kind != yaml.SequenceNode || len(steps.Content) == 0 {
		x.doc.bad(at, "repeats nothing: give it steps, and times, or for and in")
		return []*yaml.Node{}
	}
	rounds := x.rounds(n, at, values)
	before := x.times
	if x.times *= max(len(rounds), 1); x.times > maxRounds {
		x.doc.bad(at, "repeats steps more than %d times", maxRounds)
		rounds = nil
	}
	defer func() { x.times = before }()
	made := []*yaml.Node{}
	for _, inner := range rounds {
		all := x.node(steps, at+".steps", inner)
		made = append(made, all.Content...)
	}
	return made
}

// rounds are the values of each time that steps come.
func (x *expander) rounds(n *yaml.Node, path string, values map[string]any) []map[string]any {
	head := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; name != "steps" {
			head.Content = append(head.Content, n.Content[i], x.node(n.Content[i+1], join(path, name), values))
		}
	}
	var header struct {
		Times int      `json:"times,omitempty"`
		For   string   `json:"for,omitempty"`
		In    []string `json:"in,omitempty"`
	}
	decoder{doc: x.doc, strict: true}.value(head, reflect.ValueOf(&header).Elem(), path)
	_, taken := values[header.For]
	var texts []any
	switch named := header.For != "" || len(header.In) > 0; {
	case x.doc.broken(path):
	case named == (x.doc.nodes[path+".times"] != nil), named && (header.For == "" || len(header.In) == 0):
		x.doc.bad(path, "does not say how often: give it times, or for and in")
	case named && !parameterName.MatchString(header.For):
		x.doc.bad(path+".for", "%s is not a valid name: use letters and digits, beginning with a lower-case letter", phrase.Quote(header.For))
	case named && (taken || header.For == round):
		x.doc.bad(path+".for", "%s already names something else", phrase.Quote(header.For))
	case !named && (header.Times < 2 || header.Times > maxRounds):
		x.doc.bad(path+".times", "%d: use 2 to %d", header.Times, maxRounds)
	case named:
		for _, text := range header.In {
			texts = append(texts, text)
		}
	default:
		header.For = round
		for i := range header.Times {
			texts = append(texts, float64(i+1))
		}
	}
	var rounds []map[string]any
	for _, text := range texts {
		inner := map[string]any{}
		maps.Copy(inner, values)
		inner[header.For] = text
		rounds = append(rounds, inner)
	}
	return rounds
}

// unused reports parameters that no place refers to.
func (d *document) unused(used map[string]bool) {
	for i := 0; d.nodes[parameterPath(i)] != nil; i++ {
		n := d.nodes[parameterPath(i)+".name"]
		if n != nil && !used[n.Value] && len(d.problems) == 0 {
			d.bad(parameterPath(i)+".name", "nothing refers to it: write $(%s) in spec, or leave it out", n.Value)
		}
	}
}
