package scenarios

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Program is somebody's own executable in the place of a controller. It runs unmodified, as
// a child process, and all that it asks of the API server and of the BMCs passes fencelab.
//
// In the command and in env, ${NAME} is a variable of its environment: one of env, or one
// that it is given by fencelab. Those are KUBECONFIG, a file; API_SERVER, a URL, with the
// files API_CA, API_CERT and API_KEY, in PEM, for those who read no kubeconfig; NAMESPACE,
// where the hosts are; IRONIC_URL, where an Ironic owns the BMCs; SETTINGS, a file with those
// of the controller whose place it takes; TMPDIR, an empty directory of its own; and PORT, a
// free port of the loopback interface.
type Program struct {
	// command is the executable and its arguments. One that is named with a slash is
	// found from the directory of the file, any other along PATH. Left out: what the image
	// runs.
	Command []string `json:"command,omitempty"`
	// args are the arguments of what the image runs by itself, in the place of those that it has
	// there. Left out: those of the image.
	Args []string `json:"args,omitempty"`
	// image is a container image that the executable is in: a file that docker save
	// writes, which ends in .tar; a directory with an OCI layout, which begins with ./, ../
	// or /; or a reference into a registry. It runs without an engine, with the host's
	// network, as fencelab's user, and sees the directory of the file. Left out: it is an
	// executable of the host.
	Image Image `json:"image,omitempty"`
	// env is its environment, beside what it is given. A variable of that which is empty here
	// it isn't given.
	Env map[string]string `json:"env,omitempty"`
	// installs are the files, and the directories of *.yaml files, with the custom
	// resources, roles and objects that are made before it starts. With image: before a name
	// it is in the image.
	Installs []string `json:"installs,omitempty"`
	// clusterRoles bound its access to the API. Left out: everything.
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// ready is a URL, such as http://127.0.0.1:${PORT}/readyz, that answers 200 when it is
	// up. Left out: it is up when it first asks the API server for something.
	Ready string `json:"ready,omitempty"`
	// ownNetwork gives it a loopback interface of its own, since a port is fixed in it that
	// somebody else could have. There it reaches the API server, the BMCs and Ironic, and
	// nothing else.
	OwnNetwork bool `json:"ownNetwork,omitempty"`
	// dir is the directory that relative names are found from. Left out: that of the file.
	Dir string `json:"dir,omitempty"`
}

// Variable is a reference to one in a program's command or environment.
var Variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Settings is the variable of the file with the settings that a story has for the controller whose
// place a program takes. A program that asks for it has them, and is judged by them.
const Settings = "SETTINGS"

// Given are the variables that a program is given.
var Given = []string{"API_CA", "API_CERT", "API_KEY", "API_SERVER", "IRONIC_URL", "KUBECONFIG", "NAMESPACE", "PORT", Settings, "TMPDIR"}

// Ambient lists the variables that it inherits.
var Ambient = []string{"HOME", "PATH"}

// TakesSettings reports whether the program asks for those of the story.
func (p *Program) TakesSettings() bool {
	texts := slices.Concat(p.Command, p.Args)
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		texts = append(texts, p.Env[name])
	}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "${"+Settings+"}") })
}

// Expand replaces the variables in a text.
func (p *Program) Expand(text string, variables map[string]string) string {
	return expand(text, variables)
}

func expand(text string, variables map[string]string) string {
	return Variable.ReplaceAllStringFunc(text, func(reference string) string {
		return variables[reference[2:len(reference)-1]]
	})
}

// Call holds a program's command, or the arguments of its image's entry point, and its environment.
type Call struct {
	Command, Args, Env []string
}

// In returns the program's call with the given variables, to which those of env are added.
func (p *Program) In(variables map[string]string) (call Call) {
	given := maps.Clone(variables)
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		variables[name] = expand(p.Env[name], given)
		if _, ours := given[name]; ours && p.Env[name] == "" {
			delete(variables, name)
		}
	}
	for _, word := range p.Command {
		call.Command = append(call.Command, expand(word, variables))
	}
	for _, word := range p.Args {
		call.Args = append(call.Args, expand(word, variables))
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		call.Env = append(call.Env, name+"="+variables[name])
	}
	return call
}

// From has the program run from an image, as that runs it, with its own arguments.
func (p *Program) From(image Image) {
	if len(p.Command) > 0 {
		p.Command, p.Args = nil, p.Command[1:]
	}
	p.Image = image
}

// File is a file that the program names.
func (p *Program) File(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Dir, name)
}
