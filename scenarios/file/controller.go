package file

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

func (v *validator) controllerList() {
	known := slices.Sorted(maps.Keys(v.vocab.Controllers))
	path := func(i int) string { return fmt.Sprintf("spec.controllers[%d].name", i) }
	var names []string
	for i := range v.spec.Controllers {
		c := &v.spec.Controllers[i]
		names = append(names, c.Name)
		at := fmt.Sprintf("spec.controllers[%d]", i)
		if c.Pods != nil {
			v.pods(at, c)
			continue
		}
		if c.Program != nil {
			v.program(at, c)
			continue
		}
		if v.doc.broken(path(i)) {
			continue
		}
		isKnown := slices.ContainsFunc(known, func(name string) bool { return slices.Contains(several(name), c.Name) })
		if !isKnown && c.ComesWithSystem() {
			for _, field := range [...]string{"settings", "overlay", "replicas", "hosts", "rateLimit", "via", "also"} {
				v.Bad(join(at, field), "a system brings the controller %s: leave this out", c.Name)
			}
			continue
		}
		if !isKnown {
			text := unknown("controller", c.Name, known)
			if !strings.HasSuffix(text, "?") {
				text += "; one of your own comes with fencelab --module DIR, or with fencetest.With in a Go test"
			}
			v.Bad(path(i), "%s", text)
			continue
		}
		vocab := v.vocab.controller(c.Name)
		if !slices.Contains(known, c.Name) {
			v.another(at, c, vocab)
		}
		if vocab.EveryHost && c.Replicas != 0 {
			v.Bad(at+".replicas", "the controller %s runs once on every host: leave this out", c.Name)
		} else if c.Replicas < 2 || c.Replicas > maxReplicas {
			v.Bad(at+".replicas", "%d: use 2 or %d, or leave it out", c.Replicas, maxReplicas)
		}
		if v.places(at, c, vocab.EveryHost); vocab.EveryHost {
			v.Bad(at+".rateLimit", "the controller %s runs on every host, and its settings determine how often it sends requests: leave this out", c.Name)
		}
		if c.RateLimit != nil && c.RateLimit.Every <= 0 {
			v.Bad(at+".rateLimit.every", "%s: use a positive duration, such as 200ms", time.Duration(c.RateLimit.Every))
		}
		if c.RateLimit != nil && c.RateLimit.Burst < 1 {
			v.Bad(at+".rateLimit.burst", "%d: use at least 1, or the client can never send a request", c.RateLimit.Burst)
		}
		if scenarios.PartOf(c) != "power" {
			v.Bad(at+".via", "the controller %s commands no BMCs: leave this out", c.Name)
		} else if c.Via != "" {
			v.OneOf(at+".via", "protocol", c.Via, []string{scenarios.ViaRedfish, scenarios.ViaIPMI})
		}
		if c.Via == scenarios.ViaIPMI && v.spec.Topology.Ironic != nil {
			v.Bad(at+".via", "Ironic commands the BMCs, by Redfish: leave this out")
		}
		if c.Plays != "" {
			v.OneOf(at+".plays", "part", c.Plays, scenarios.KnownParts)
		}
		if len(c.Also) > 0 {
			v.Bad(at+".also", "only a program plays several parts")
		}
		if vocab.Settings == nil {
			v.Bad(at+".settings", "the controller %s has no settings", c.Name)
		} else if settings := vocab.Settings(); v.doc.decodeForeign(at+".settings", settings) {
			v.ask(at+".settings", settings)
		}
		if len(vocab.Actions) == 0 {
			v.Bad(at+".overlay", "the controller %s takes no overlay", c.Name)
		}
		for j, rule := range c.Overlay {
			v.overlay(fmt.Sprintf("%s.overlay[%d]", at, j), rule, vocab)
		}
	}
	for i, name := range names {
		if first := slices.Index(names, name); first < i && slices.Contains(known, name) {
			v.Bad(path(i), "%s is listed twice, first in %s: call another one %s", name, path(first), history.Process(name, 2))
		}
	}
	v.distinct(names, path)
}

// another checks a further controller of a kind.
func (v *validator) another(at string, c *scenarios.Controller, vocab ControllerVocabulary) {
	first := history.ControllerOf(c.Name)
	listed := v.spec.Controller(first)
	switch n := slices.Index(v.controllers, c.Name); {
	case vocab.EveryHost:
		v.Bad(at+".name", "the controller %s runs on every host: there is no second one", first)
	case vocab.StandIn:
		v.Bad(at+".name", "a cluster has one %s", first)
	case v.controllers == nil:
	case listed == nil:
		v.Bad(at+".name", "there is no %s that this is beside: call it that", first)
	case slices.Contains(v.controllers[n+1:], c.Name):
		v.Bad(at+".name", "%s is one of the replicas of %s: choose another number", c.Name, first)
	}
	if v.vocab.Judged != nil && listed != nil {
		swapped := *v.spec
		swapped.Controllers = slices.Clone(v.spec.Controllers)
		one, other := swapped.Controller(first), swapped.Controller(c.Name)
		one.Settings, other.Settings = other.Settings, one.Settings
		if !reflect.DeepEqual(v.vocab.Judged(v.spec), v.vocab.Judged(&swapped)) {
			v.Bad(at+".name", "guarantees judge %s and %s by one set of times, in which their settings differ: give both the same", first, c.Name)
		}
	}
	v.Bad(at+".replicas", "replicas are those of %s, and share its settings and its Lease: leave this out", first)
}

// ask reports what a value of another package finds wrong with itself.
func (v *validator) ask(path string, value any) {
	if value, ok := value.(interface{ Validate() error }); ok {
		if err := value.Validate(); err != nil {
			v.Bad(path, "%s", phrase.OneLine(err))
		}
	}
	if value, ok := value.(interface{ Hosts() (string, []string) }); ok {
		field, names := value.Hosts()
		for i, name := range names {
			v.Host(fmt.Sprintf("%s.%s[%d]", path, field, i), name)
		}
	}
}

func (v *validator) overlay(path string, rule scenarios.Rule, vocab ControllerVocabulary) {
	ok := v.OneOf(path+".then", "action", rule.Then, vocab.Actions)
	for _, fact := range slices.Sorted(maps.Keys(rule.When)) {
		at := join(path+".when", fact)
		ok = v.OneOf(at, "fact", fact, vocab.Facts) && ok
		switch rule.When[fact].(type) {
		case bool, string, float64:
		default:
			v.Bad(at, "the value of a fact is text, a number, true or false")
		}
	}
	if ok && vocab.CheckRule != nil {
		if err := vocab.CheckRule(rule); err != nil {
			v.Bad(path, "%s", phrase.OneLine(err))
		}
	}
}

// program checks what a controller says of its program.
func (v *validator) program(at string, c *scenarios.Controller) {
	p := c.Program
	switch vocab := v.vocab.controller(c.Name); {
	case c.Settings == nil:
	case !p.TakesSettings():
		v.Bad(at+".settings", "a program has no settings, unless it asks for ${%s}: use program.command and program.env", scenarios.Settings)
	case vocab.Settings == nil:
		v.Bad(at+".settings", "there is no controller %s whose settings it could take", c.Name)
	default:
		if settings := vocab.Settings(); v.doc.decodeForeign(at+".settings", settings) {
			v.ask(at+".settings", settings)
		}
	}
	if len(c.Overlay) > 0 {
		v.Bad(at+".overlay", "a program takes no overlay")
	}
	if c.Replicas != 0 {
		v.Bad(at+".replicas", "a program runs once")
	}
	if c.RateLimit != nil {
		v.Bad(at+".rateLimit", "a program limits its requests itself")
	}
	v.Bad(at+".via", "a program chooses its protocol itself: leave this out")
	if !dnsLabel.MatchString(c.Name) {
		v.Bad(at+".name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(c.Name))
	}
	if v.vocab.controller(c.Name).EveryHost || v.vocab.controller(c.Name).StandIn {
		v.Bad(at+".name", "no program can replace %s", c.Name)
	}
	if c.Plays != "" {
		v.OneOf(at+".plays", "part", c.Plays, scenarios.KnownParts)
	}
	v.also(at, c.Also, []string{scenarios.PartOf(c)})
	at += ".program"
	v.executable(at, p)
	for i, name := range p.Installs {
		if _, inImage := scenarios.FromImage(name); inImage && p.Image == "" {
			v.Bad(fmt.Sprintf("%s.installs[%d]", at, i), "%s is in an image, and there is none: name it, or a file", phrase.Quote(name))
		}
	}
	if p.Ready != "" && !strings.HasPrefix(p.Ready, "http://") && !strings.HasPrefix(p.Ready, "https://") && !strings.HasPrefix(p.Ready, "${") {
		v.Bad(at+".ready", "%s is no URL: write http://127.0.0.1:${PORT}/readyz, or whatever answers when it is up", phrase.Quote(p.Ready))
	}
	v.variables(at, p, map[string]string{"ready": p.Ready}, scenarios.Given)
}

// image checks the name of an image. A file is found from that of the story.
func (v *validator) image(at string, image scenarios.Image) {
	if err := image.In(filepath.Dir(v.doc.name)).Check(); err != nil {
		v.Bad(at, "%s", err)
	}
}

// executable checks what a program runs.
func (v *validator) executable(at string, p *scenarios.Program) {
	v.image(at+".image", p.Image)
	switch {
	case len(p.Command) == 0 && p.Image == "":
		v.Bad(at, "has neither a command nor an image: name the executable")
	case len(p.Command) > 0 && p.Command[0] == "":
		v.Bad(at+".command", "name the executable")
	case len(p.Args) > 0 && p.Image == "":
		v.Bad(at+".args", "are for what an image runs, and there is none: add them to command")
	case len(p.Args) > 0 && len(p.Command) > 0:
		v.Bad(at+".args", "are for what the image runs by itself: add them to command")
	}
}

// also checks the parts that a program plays beside others.
func (v *validator) also(at string, also, plays []string) {
	for _, part := range also {
		if v.OneOf(at+".also", "part", part, scenarios.KnownParts) && slices.Contains(plays, part) {
			v.Bad(at+".also", "it plays %s already", part)
		}
	}
}

// pods checks what a controller says of its Pods. They have no settings and no part: whoever
// commands them has.
func (v *validator) pods(at string, c *scenarios.Controller) {
	for _, no := range []struct {
		field string
		said  bool
	}{
		{"settings", c.Settings != nil}, {"overlay", len(c.Overlay) > 0}, {"replicas", c.Replicas != 0}, {"hosts", len(c.Hosts) > 0}, {"rateLimit", c.RateLimit != nil}, {"via", c.Via != ""},
		{"plays", c.Plays != ""}, {"also", len(c.Also) > 0}, {"program", c.Program != nil},
	} {
		if no.said {
			v.Bad(at+"."+no.field, "a controller that is Pods has none: leave this out")
		}
	}
	if !dnsLabel.MatchString(c.Name) {
		v.Bad(at+".name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(c.Name))
	}
	if _, taken := v.vocab.Controllers[c.Name]; taken {
		v.Bad(at+".name", "%s is a controller of fencelab's: give the Pods another name", c.Name)
	}
	at += ".pods"
	if !dnsLabel.MatchString(c.Pods.ServiceAccount) {
		v.Bad(at+".serviceAccount", "%s is not the name of a ServiceAccount", phrase.Quote(c.Pods.ServiceAccount))
	}
	if len(c.Pods.Images) == 0 || slices.Contains(c.Pods.Images, "") {
		v.Bad(at+".images", "name the files with their images")
	}
}

// bmc checks the description of a program that serves the BMCs, if there is one.
func (v *validator) bmc(at string, b *scenarios.BMC) {
	if b == nil {
		return
	}
	v.executable(at, b.Program())
	v.variables(at, b.Program(), map[string]string{"address": b.Address}, scenarios.GivenBMC)
	if b.System != "" && !scenarios.Variable.MatchString(b.System) {
		v.Bad(at+".system", "%s is the same for all hosts: use ${HOST}, ${DOMAIN} or ${UUID}", phrase.Quote(b.System))
	}
	for _, reference := range scenarios.Variable.FindAllStringSubmatch(b.System, -1) {
		v.OneOf(at+".system", "variable", reference[1], scenarios.SystemBMC)
	}
}

// variables checks the environment of a program, and the references to it in its command and in
// other texts.
func (v *validator) variables(at string, p *scenarios.Program, texts map[string]string, given []string) {
	texts = maps.Clone(texts)
	for i, word := range p.Command {
		texts[fmt.Sprintf("command[%d]", i)] = word
	}
	for i, word := range p.Args {
		texts[fmt.Sprintf("args[%d]", i)] = word
	}
	names := slices.Sorted(maps.Keys(p.Env))
	for _, name := range names {
		if !scenarios.Variable.MatchString("${" + name + "}") {
			v.Bad(join(at+".env", name), "%s is not a valid name of a variable", phrase.Quote(name))
		}
		if slices.Contains(given, name) && p.Env[name] != "" {
			v.Bad(join(at+".env", name), "%s is set by fencelab: leave it out, or \"\" so that the program doesn't have it", name)
		}
		texts[join("env", name)] = p.Env[name]
	}
	known := slices.Compact(slices.Sorted(slices.Values(slices.Concat(given, scenarios.Ambient, names))))
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		for _, reference := range scenarios.Variable.FindAllStringSubmatch(texts[path], -1) {
			v.OneOf(at+"."+path, "variable", reference[1], known)
		}
	}
}

// places checks where a controller's processes run.
func (v *validator) places(at string, c *scenarios.Controller, everyHost bool) {
	switch vocab := v.vocab.controller(c.Name); {
	case len(c.Hosts) == 0:
		return
	case everyHost:
		v.Bad(at+".hosts", "the controller %s runs once on every host: leave this out", c.Name)
	case vocab.StandIn:
		v.Bad(at+".hosts", "the stand-in %s runs beside the API server: leave this out", c.Name)
	case len(c.Hosts) != max(c.Replicas, 1):
		v.Bad(at+".hosts", "%d hosts for %d processes: name one for each", len(c.Hosts), max(c.Replicas, 1))
	}
	for i, host := range c.Hosts {
		v.Host(fmt.Sprintf("%s.hosts[%d]", at, i), host)
	}
}
