package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
)

// KindSystem heads a file that says which programs are a system under test.
const KindSystem = "System"

// Program is somebody's own executable in the place of a controller. It runs unmodified, as
// a child process, and all that it asks of the API server and of the BMCs passes fencelab.
//
// In the command and in env, ${NAME} is a variable of its environment: one of env, or one
// that it is given by fencelab. Those are KUBECONFIG, a file; API_SERVER, a URL, with the
// files API_CA, API_CERT and API_KEY, in PEM, for those who read no kubeconfig; NAMESPACE,
// where the hosts are; IRONIC_URL, where an Ironic owns the BMCs; TMPDIR, an empty directory
// of its own; and PORT, a free port of the loopback interface.
type Program struct {
	// command is the executable and its arguments. One that is named with a slash is
	// found from the directory of the file, any other along PATH.
	Command []string `json:"command"`
	// env is its environment, beside what it is given.
	Env map[string]string `json:"env,omitempty"`
	// installs are the files, and the directories of *.yaml files, with the custom
	// resources, roles and objects that are made before it starts.
	Installs []string `json:"installs,omitempty"`
	// clusterRoles are what it may do to the API. Left out: everything.
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// ready is a URL, such as http://127.0.0.1:${PORT}/readyz, that answers 200 when it is
	// up. Left out: it is up when it first asks the API server for something.
	Ready string `json:"ready,omitempty"`
	// dir is the directory that relative names are found from. Left out: that of the file.
	Dir string `json:"dir,omitempty"`
}

// System is what a file of that kind says: controllers that take the place of those that a
// scenario lists.
type System struct {
	// apiVersion is fencelab.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// kind is System.
	Kind string `json:"kind"`
	// metadata names the system.
	Metadata SystemMetadata `json:"metadata"`
	// spec is what it is made of.
	Spec SystemSpec `json:"spec"`
}

// SystemMetadata names a system and says what it is.
type SystemMetadata struct {
	// name is the system's name: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// description says in a sentence or two what it is, and in which versions.
	Description string `json:"description"`
}

// SystemSpec is what a system is made of.
type SystemSpec struct {
	// controllers are its programs. One that plays a part takes the place of the
	// controller that plays it in the scenario, if there is one; one without a part runs
	// in every scenario.
	Controllers []Controller `json:"controllers"`
	// ironic is an Ironic that is a part of the system, and owns the BMCs in every scenario.
	// A scenario that has one as well says how it behaves.
	Ironic *Ironic `json:"ironic,omitempty"`
}

// variable is a reference to one in a program's command or environment.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Given are the variables that a program is given.
var Given = []string{"API_CA", "API_CERT", "API_KEY", "API_SERVER", "IRONIC_URL", "KUBECONFIG", "NAMESPACE", "PORT", "TMPDIR"}

// ambient are those that it inherits.
var ambient = []string{"HOME", "PATH"}

// Expand replaces the variables in a text.
func (p *Program) Expand(text string, variables map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string {
		return variables[reference[2:len(reference)-1]]
	})
}

// program checks what a controller says of its program.
func (v *validator) program(at string, c *Controller) {
	p := c.Program
	if c.Settings != nil {
		v.bad(at+".settings", "a program has no settings: use program.command and program.env")
	}
	if len(c.Overlay) > 0 {
		v.bad(at+".overlay", "a program takes no overlay")
	}
	if c.Replicas != 0 {
		v.bad(at+".replicas", "a program runs once")
	}
	if c.RateLimit != nil {
		v.bad(at+".rateLimit", "a program bounds its requests itself")
	}
	if !dnsLabel.MatchString(c.Name) {
		v.bad(at+".name", "%s is no name: use lower-case letters, digits and dashes", quote(c.Name))
	}
	if v.vocab.Controllers[c.Name].EveryHost || v.vocab.Controllers[c.Name].StandIn {
		v.bad(at+".name", "no program can take the place of %s", c.Name)
	}
	if c.Plays != "" {
		v.oneOf(at+".plays", "part", c.Plays, parts)
	}
	at += ".program"
	if len(p.Command) == 0 || p.Command[0] == "" {
		v.bad(at+".command", "name the executable")
	}
	texts := map[string]string{"ready": p.Ready}
	for i, word := range p.Command {
		texts[fmt.Sprintf("command[%d]", i)] = word
	}
	names := slices.Sorted(maps.Keys(p.Env))
	for _, name := range names {
		if !variable.MatchString("${" + name + "}") {
			v.bad(join(at+".env", name), "%s is no name of a variable", quote(name))
		}
		if slices.Contains(Given, name) {
			v.bad(join(at+".env", name), "%s is given by fencelab", name)
		}
		texts[join("env", name)] = p.Env[name]
	}
	known := slices.Compact(slices.Sorted(slices.Values(slices.Concat(Given, ambient, names))))
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		for _, reference := range variable.FindAllStringSubmatch(texts[path], -1) {
			v.oneOf(at+"."+path, "variable", reference[1], known)
		}
	}
}

// beside makes the names of the programs' files, and of an Ironic's, those beside the file that
// names them.
func beside(file string, controllers []Controller, ironic *Ironic) error {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return err
	}
	for i := range controllers {
		if p := controllers[i].Program; p != nil && !filepath.IsAbs(p.Dir) {
			p.Dir = filepath.Join(dir, p.Dir)
		}
	}
	if ironic != nil && ironic.Bin != "" && !filepath.IsAbs(ironic.Bin) {
		ironic.Bin = filepath.Join(dir, ironic.Bin)
	}
	return nil
}

// LoadSystem reads the system in a file, with the strictness of Load.
func LoadSystem(file string, vocab Vocabulary) (*System, error) {
	data, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	system := new(System)
	doc := parse(file, data)
	if doc.head(KindSystem) {
		doc.decode(system)
		v := newValidator(doc, vocab, &Spec{Controllers: system.Spec.Controllers})
		if !dnsLabel.MatchString(system.Metadata.Name) {
			v.bad("metadata.name", "%s is no name: use lower-case letters, digits and dashes", quote(system.Metadata.Name))
		}
		v.controllerList()
		v.ironicTimes("spec.ironic", system.Spec.Ironic)
		for i := range system.Spec.Controllers {
			if system.Spec.Controllers[i].Program == nil {
				doc.bad(fmt.Sprintf("spec.controllers[%d]", i), "name its program: a system is made of programs")
			}
		}
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	return system, beside(file, system.Spec.Controllers, system.Spec.Ironic)
}

// ErrNothingToTest is what comes of a system in a scenario that has none of its parts.
var ErrNothingToTest = errors.New("no controller of the scenario plays a part of the system")

// Takes puts the system's programs in the place of a scenario's controllers. Steps go on to
// name those. It fails with ErrNothingToTest, and for a story about a mistake of ours.
func (s *System) Takes(spec *Spec) error {
	listed := slices.Clone(spec.Controllers)
	taken := false
	for _, c := range s.Spec.Controllers {
		part := cmp.Or(c.Plays, c.Name)
		i := slices.IndexFunc(listed, func(o Controller) bool { return o.Program == nil && partOf(&o) == partOf(&c) })
		switch {
		case !slices.Contains(parts, partOf(&c)):
			listed = append(listed, c)
		case i < 0: // nobody plays it in this story
		case len(listed[i].Overlay) > 0:
			return fmt.Errorf("the scenario is about a wrong %s: its overlay means nothing to a program", listed[i].Name)
		case listed[i].Replicas > 1:
			return fmt.Errorf("the scenario has %d processes of %s, and a program runs once", listed[i].Replicas, listed[i].Name)
		default:
			c.Name, c.Plays = listed[i].Name, part
			listed[i], taken = c, true
		}
	}
	if !taken {
		return ErrNothingToTest
	}
	spec.Controllers = listed
	spec.Topology.Ironic = s.Spec.Ironic.in(spec.Topology.Ironic)
	return nil
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

// UnderTest puts the programs of the system in a file in the place of the scenarios'
// controllers. What it returns says why a scenario is not told with it, or nothing.
func UnderTest(file string, vocab Vocabulary, all []*Scenario) (unfit func(*Scenario) string, err error) {
	system, err := LoadSystem(file, vocab)
	if err != nil {
		return nil, err
	}
	reasons := make(map[*Scenario]string)
	for _, s := range all {
		if err := system.Takes(&s.Spec); err != nil {
			reasons[s] = err.Error()
		}
	}
	if len(reasons) == len(all) {
		return nil, fmt.Errorf("%s: no scenario can be told with it; of %s: %s", file, all[0].Metadata.Name, reasons[all[0]])
	}
	return func(s *Scenario) string { return reasons[s] }, nil
}

// partOf is the part that a controller plays.
func partOf(c *Controller) string {
	switch part := cmp.Or(c.Plays, c.Name); part {
	case "reboot":
		return "power"
	case "poisonpill":
		return "fencer"
	default:
		return part
	}
}
