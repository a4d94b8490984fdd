package scenarios

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// KindSystem heads a file that says which programs are a system under test.
const KindSystem = "System"

// System is the content of a file of that kind: programs that take the place of the controllers
// that a scenario lists.
type System struct {
	// apiVersion is fencelab.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// kind is System.
	Kind string `json:"kind"`
	// metadata names the system.
	Metadata SystemMetadata `json:"metadata"`
	// about documents a system for its other users.
	About *About `json:"about,omitempty"`
	// spec describes its parts.
	Spec SystemSpec `json:"spec"`

	// File is the file that it was loaded from, as its user named it.
	File string `json:"-"`
}

// SystemMetadata names a system and says what it is.
type SystemMetadata struct {
	// name is the system's name: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// description says in a sentence or two what it is.
	Description string `json:"description"`
}

// About says where the programs of a system that comes with fencelab are from, and how far it
// was tried. Files are named from where the source of fencelab is.
type About struct {
	// tried are the programs, each with the version that the system was tried with.
	Tried []string `json:"tried"`
	// needs lists what has to be there for it. Each is a command of fencelab's that provides it, or
	// something that its user brings, and where.
	Needs []string `json:"needs"`
	// stories is the directory of those that it was tried with.
	Stories string `json:"stories"`
	// adapted lists the differences from its release and its usual deployment.
	Adapted []string `json:"adapted"`
	// uncovered lists questions that a run with it leaves open.
	Uncovered []string `json:"uncovered"`
}

// SystemSpec describes the parts of a system.
type SystemSpec struct {
	// controllers are its programs.
	Controllers []SystemController `json:"controllers,omitempty"`
	// ironic is an Ironic that is a part of the system, and owns the BMCs in every scenario.
	// A scenario that has one as well says how it behaves.
	Ironic *Ironic `json:"ironic,omitempty"`
	// bmc is a program of the system that takes the place of the BMCs, in every scenario.
	BMC *BMC `json:"bmc,omitempty"`
	// settings configure fencelab's own controllers that run beside the programs, by their names,
	// with what they have to know of the system. The story's other settings remain.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
	// requests say what the system's own kinds mean, in every scenario that doesn't say so itself.
	Requests map[string]Request `json:"requests,omitempty"`
}

// SystemController is one of a system's programs.
type SystemController struct {
	// name is the program's.
	Name string `json:"name"`
	// plays are the parts that it plays: one, or a list of them. It takes the place of the
	// controller that plays one of them in a scenario, or joins another program that did.
	// Left out: it runs in every scenario. So does one that plays tenancy, and is judged.
	Plays Parts `json:"plays,omitempty"`
	// also are parts that it plays as well, in a scenario where it plays one. The controllers
	// that the scenario has for them don't run.
	Also Parts `json:"also,omitempty"`
	// program is the program to run.
	Program *Program `json:"program,omitempty"`
	// pods run in its place on every host, as those of a DaemonSet, which a program or its
	// manifests create.
	Pods *Pods `json:"pods,omitempty"`
}

// Parts returns the parts that it plays. Like a scenario's controller, by default it plays the part
// of its own name. Pods play none.
func (c *SystemController) Parts() []string {
	if c.Pods != nil {
		return nil
	}
	if len(c.Plays) > 0 {
		return c.Plays
	}
	if part := PartOf(&Controller{Name: c.Name}); slices.Contains(KnownParts, part) {
		return []string{part}
	}
	return nil
}

// Parts are all that its programs play.
func (s *System) Parts() (played []string) {
	for _, part := range KnownParts {
		if slices.ContainsFunc(s.Spec.Controllers, func(c SystemController) bool {
			return slices.Contains(c.Parts(), part) || slices.Contains(c.Also, part)
		}) {
			played = append(played, part)
		}
	}
	return played
}

// Parts are parts that a program plays.
type Parts []string

// UnmarshalJSON reads one part, or a list of them.
func (p *Parts) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		if json.Unmarshal(data, (*[]string)(p)) != nil {
			return errors.New("a list of parts is expected, such as [deletion, healthcheck]")
		}
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return errors.New("a part is expected, such as remediation, or a list of parts")
	}
	*p = Parts{one}
	return nil
}

// ErrNothingToTest reports that a system plays no part in a scenario.
var ErrNothingToTest = errors.New("no controller of the scenario plays a part of the system")

// Takes puts the system's programs in the place of a scenario's controllers. Steps go on to name
// those. Programs that play one part together are distinguished like the processes of one
// controller, and judged as one. It fails with ErrNothingToTest, and for a story about a mistake of
// ours.
func (s *System) Takes(spec *Spec) error {
	listed := slices.Clone(spec.Controllers)
	taken := map[string]int{} // how many programs play a part, by the name that the story has for it
	for _, member := range s.Spec.Controllers {
		played := member.Parts()
		if len(played) == 0 {
			listed = append(listed, Controller{Name: member.Name, Program: member.Program, Pods: member.Pods})
			continue
		}
		var fit []int
		for i := range listed {
			if o := &listed[i]; slices.Contains(played, PartOf(o)) && (o.Program == nil || taken[o.Name] > 0) {
				fit = append(fit, i)
			}
		}
		if len(fit) == 0 {
			// No controller of this story has its part, unless that is one of programs alone.
			if i := slices.IndexFunc(played, func(part string) bool { return ownIn(part) == "" }); i >= 0 {
				listed = append(listed, Controller{Name: member.Name, Plays: played[i], Also: member.Also, Program: member.Program})
				taken[member.Name]++
			}
			continue
		}
		o := listed[fit[0]]
		switch {
		case len(fit) > 1:
			return fmt.Errorf("the scenario has %s and %s, but %s of the system is both", o.Name, listed[fit[1]].Name, member.Name)
		case len(o.Overlay) > 0:
			return fmt.Errorf("the scenario is about a wrong %s, but an overlay has no effect on a program", o.Name)
		case o.Replicas > 1:
			return fmt.Errorf("the scenario has %d processes of %s, but a program runs only once", o.Replicas, o.Name)
		case len(o.Hosts) > 0:
			return fmt.Errorf("the scenario puts %s on a host, but a program runs beside the lab", o.Name)
		case o.RateLimit != nil:
			return fmt.Errorf("the scenario limits how often %s sends requests, but a program does that itself", o.Name)
		}
		c := Controller{Name: o.Name, Plays: cmp.Or(o.Plays, PartOf(&o)), Also: member.Also, Program: member.Program}
		if taken[o.Name] == 0 && member.Program.TakesSettings() { // those of another name have none
			c.Settings = o.Settings
		}
		if taken[o.Name]++; taken[o.Name] == 1 {
			listed[fit[0]] = c
			continue
		}
		c.Name = history.Process(o.Name, taken[o.Name])
		listed = append(listed, c)
	}
	if len(taken) == 0 && s.Spec.BMC == nil {
		return ErrNothingToTest
	}
	if path := OwnBMCs(spec); path != "" && s.Spec.BMC != nil {
		return fmt.Errorf("%s is about fencelab's own BMCs, whose place the system takes", path)
	}
	listed, err := withoutTheOthers(listed, spec.Steps)
	if err != nil {
		return err
	}
	for i := range listed {
		if o := &listed[i]; o.Program == nil {
			if o.Settings, err = overridden(o.Settings, s.Spec.Settings[spec.FirstOf(o)]); err != nil {
				return fmt.Errorf("settings of %s: %w", o.Name, err)
			}
		}
	}
	spec.Controllers = listed
	spec.AddRequests(s.Spec.Requests)
	spec.Topology.Ironic = s.Spec.Ironic.in(spec.Topology.Ironic)
	spec.Topology.BMC = cmp.Or(s.Spec.BMC, spec.Topology.BMC)
	return nil
}

// overridden are settings of which some are replaced.
func overridden(settings, by json.RawMessage) (json.RawMessage, error) {
	if len(by) == 0 {
		return settings, nil
	}
	all := make(map[string]json.RawMessage)
	for _, some := range []json.RawMessage{settings, by} {
		if len(some) == 0 {
			continue
		}
		if err := json.Unmarshal(some, &all); err != nil {
			return nil, err
		}
	}
	return json.Marshal(all)
}

// withoutTheOthers leaves out the controllers of parts that a program plays as well. It fails for a
// story with an operation on one of them, since that would have no target.
func withoutTheOthers(listed []Controller, steps []Step) ([]Controller, error) {
	var also []string
	for i := range listed {
		also = append(also, listed[i].Also...)
	}
	var kept []Controller
	for _, c := range listed {
		switch {
		case c.Program != nil || c.Pods != nil || !slices.Contains(also, PartOf(&c)):
			kept = append(kept, c)
		case named(steps, c.Name):
			return nil, fmt.Errorf("the scenario is about %s, whose part the system plays in the program of another", c.Name)
		}
	}
	return kept, nil
}

// named reports whether steps do something to a controller, or wait for what it does.
func named(steps []Step, controller string) bool {
	data, err := json.Marshal(steps)
	if err != nil {
		panic(fmt.Sprintf("steps: %v", err)) // unreachable: they were JSON
	}
	name, _ := json.Marshal(controller)
	return bytes.Contains(data, append([]byte(`"controller":`), name...)) || bytes.Contains(data, append([]byte(`"actor":`), name...))
}

// in is a system's Ironic in a scenario, which may have one as well, and then says how it
// behaves.
func (i *Ironic) in(story *Ironic) *Ironic {
	if i == nil {
		return story
	}
	taken := *i
	if story != nil {
		taken.SyncInterval = cmp.Or(story.SyncInterval, i.SyncInterval)
		taken.PowerTimeout = cmp.Or(story.PowerTimeout, i.PowerTimeout)
	}
	return &taken
}

// UnderTest puts the programs of a system in the place of the scenarios' controllers. Unfit gives
// the reason why a scenario can't be played with it, or "".
func (s *System) UnderTest(all []*Scenario) (unfit func(*Scenario) string, err error) {
	reasons := make(map[*Scenario]string)
	for _, scenario := range all {
		if err := s.Takes(&scenario.Spec); err != nil {
			reasons[scenario] = err.Error()
		}
	}
	if len(reasons) == len(all) {
		return nil, fmt.Errorf("%s: no scenario can be told with it; of %s: %s", s.File, all[0].Metadata.Name, reasons[all[0]])
	}
	return func(scenario *Scenario) string { return reasons[scenario] }, nil
}

// ImagesUsage says what [System.UseImages] takes.
const ImagesUsage = "container image for a program of the system, in the place of what it runs, as [NAME=]IMAGE: an archive, a directory with an OCI layout, or a reference; may be repeated"

// UseImages has programs run from other images, each given as IMAGE or, where there are several
// programs, as NAME=IMAGE. The BMCs' is called bmc. What is on this machine is found from a
// directory.
func (s *System) UseImages(given []string, dir string) error {
	programs := make(map[string]func(Image))
	for i := range s.Spec.Controllers {
		if c := &s.Spec.Controllers[i]; c.Program != nil {
			programs[c.Name] = c.Program.From
		}
	}
	if b := s.Spec.BMC; b != nil {
		programs["bmc"] = func(image Image) {
			p := b.Program()
			p.From(image)
			b.Command, b.Args, b.Image = p.Command, p.Args, p.Image
		}
	}
	names := slices.Sorted(maps.Keys(programs))
	for _, text := range given {
		name, image, named := strings.Cut(text, "=")
		if !named {
			image = text
			if name = ""; len(names) == 1 {
				name = names[0]
			}
		}
		use := programs[name]
		switch {
		case image == "":
			return fmt.Errorf("--image %s: name an image", text)
		case use == nil && !named:
			return fmt.Errorf("--image %s: the system %s has %d programs; say whose it is, as NAME=IMAGE, of %s", text, s.Metadata.Name, len(names), strings.Join(names, ", "))
		case use == nil:
			return fmt.Errorf("--image %s: the system %s has no program %s; choose %s", text, s.Metadata.Name, name, strings.Join(names, ", "))
		}
		if err := Image(image).In(dir).Check(); err != nil {
			return fmt.Errorf("--image %s: %w", text, err)
		}
		use(Image(image).In(dir))
	}
	return nil
}

// Files returns the files that the system runs and whose names are written in its commands:
// executables, which are looked for along PATH where they have no slash, scripts, images, and those
// of its Ironic.
func (s *System) Files() (files []string) {
	add := func(file string) {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	programs := func(yield func(*Program) bool) {
		for _, c := range s.Spec.Controllers {
			if c.Pods != nil {
				for _, image := range c.Pods.Images {
					add(c.Pods.File(image))
				}
				continue
			}
			if !yield(c.Program) {
				return
			}
		}
		if s.Spec.BMC != nil {
			yield(s.Spec.BMC.Program())
		}
	}
	for p := range programs {
		if image := p.Image.In(p.Dir); image.Local() {
			add(string(image))
		}
		for i, word := range p.Command {
			switch {
			case i == 0 && p.Image != "": // it is in there
			case i == 0 && !strings.Contains(word, "/"):
				add(word)
			case i > 0 && (strings.HasPrefix(word, "-") || strings.Contains(word, "$") || strings.Contains(word, "://")):
			case i == 0 || strings.Contains(word, "/") || isFile(p.File(word)):
				add(p.File(word))
			}
		}
	}
	if i := s.Spec.Ironic; i != nil && i.Image.Local() {
		add(string(i.Image))
	} else if i != nil && i.Bin != "" {
		add(filepath.Join(i.Bin, "ironic"))
	}
	return files
}

// Locate returns where one of [System.Files] is, or why it is not here.
func Locate(file string) (string, error) {
	if !strings.Contains(file, "/") {
		return exec.LookPath(file)
	}
	_, err := os.Stat(file)
	return file, err
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// OwnBMCs is where a scenario asks for something that only fencelab's own BMCs do; empty if it
// doesn't.
func OwnBMCs(spec *Spec) string {
	for i := range spec.Topology.Hosts {
		if spec.Topology.Hosts[i].PowerRestore != "" {
			return fmt.Sprintf("spec.topology.hosts[%d].powerRestore", i)
		}
	}
	for i := range spec.Steps {
		if do := spec.Steps[i].Do; do != nil && do.AddFault != nil {
			return fmt.Sprintf("spec.steps[%d].do.addFault", i)
		}
	}
	return ""
}
