package file

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// LoadSystem reads the system in a file, with the strictness of Load.
func LoadSystem(file string, vocab Vocabulary) (*scenarios.System, error) {
	data, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	system := &scenarios.System{File: file}
	doc := parse(file, data)
	if doc.head(scenarios.KindSystem) {
		doc.decode(system)
		newValidator(doc, vocab, &scenarios.Spec{}).system(system)
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	var programs []scenarios.Controller
	for _, c := range system.Spec.Controllers {
		programs = append(programs, scenarios.Controller{Program: c.Program, Pods: c.Pods})
	}
	placed(dir, programs, system.Spec.Ironic, system.Spec.BMC)
	return system, nil
}

// LoadSystemFrom reads the system in a file, and has its programs come from images, as
// [scenarios.System.UseImages] does.
func LoadSystemFrom(file string, images []string, vocab Vocabulary) (*scenarios.System, error) {
	system, err := LoadSystem(file, vocab)
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return system, system.UseImages(images, here)
}

// ImageHere is an image that was named on the command line.
func ImageHere(name string) (scenarios.Image, error) {
	here, err := os.Getwd()
	if err == nil {
		err = scenarios.Image(name).In(here).Check()
	}
	return scenarios.Image(name).In(here), err
}

// system checks what a system says.
func (v *validator) system(s *scenarios.System) {
	if !dnsLabel.MatchString(s.Metadata.Name) {
		v.Bad("metadata.name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(s.Metadata.Name))
	}
	v.ironicTimes("spec.ironic", s.Spec.Ironic)
	v.bmc("spec.bmc", s.Spec.BMC)
	if len(s.Spec.Controllers) == 0 && s.Spec.BMC == nil {
		v.Bad("spec", "nothing is under test: name controllers, or a bmc")
	}
	v.requestList(s.Spec.Requests)
	path := func(i int) string { return fmt.Sprintf("spec.controllers[%d].name", i) }
	var names []string
	for i := range s.Spec.Controllers {
		c, at := &s.Spec.Controllers[i], fmt.Sprintf("spec.controllers[%d]", i)
		names = append(names, c.Name)
		switch {
		case c.Pods != nil:
			var plays string
			if len(c.Plays) > 0 {
				plays = c.Plays[0]
			}
			v.pods(at, &scenarios.Controller{Name: c.Name, Plays: plays, Also: c.Also, Program: c.Program, Pods: c.Pods})
			continue
		case c.Program == nil:
			v.Bad(at, "say what runs: program, or pods")
			continue
		}
		v.program(at, &scenarios.Controller{Name: c.Name, Program: c.Program})
		for _, part := range c.Plays {
			v.OneOf(at+".plays", "part", part, scenarios.KnownParts)
		}
		v.also(at, c.Also, c.Parts())
	}
	v.distinct(names, path)
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Settings)) {
		at := join("spec.settings", name)
		vocab, known := v.vocab.Controllers[name]
		switch {
		case !known:
			v.Bad(at, "%s", unknown("controller", name, slices.Sorted(maps.Keys(v.vocab.Controllers))))
		case vocab.Settings == nil:
			v.Bad(at, "the controller %s has no settings", name)
		default:
			if settings := vocab.Settings(); v.doc.decodeForeign(at, settings) {
				v.ask(at, settings)
			}
		}
	}
}
