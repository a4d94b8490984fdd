package scenarios

import (
	"cmp"
	"path"
)

// BMC is somebody else's program that serves Redfish for all hosts, in the place of fencelab's
// BMCs. It drives the domains of a hypervisor by itself, and all that it is asked passes fencelab.
// It has no faults but its own.
//
// In the command and in env, ${NAME} is a variable of its environment: one of env, or one that it
// is given by fencelab. Those are LIBVIRT_URI, where the domains are; HOSTS, a file in JSON with
// the name, the domain and the uuid of each host; BMC_USERNAME and BMC_PASSWORD, which every client
// has; TMPDIR, an empty directory of its own; and PORT, a free port of the loopback interface.
type BMC struct {
	// command is the executable and its arguments. One that is named with a slash is found from the
	// directory of the file, any other along PATH. Left out: what the image runs.
	Command []string `json:"command,omitempty"`
	// args are the arguments of what the image runs by itself, in the place of those that it has
	// there. Left out: those of the image.
	Args []string `json:"args,omitempty"`
	// image is a container image that the executable is in, as that of a program. Left out: it is
	// an executable of the host.
	Image Image `json:"image,omitempty"`
	// env is its environment, beside what it is given.
	Env map[string]string `json:"env,omitempty"`
	// address is the URL of its Redfish service; it is up when the root of the service answers 200.
	// Default: http://127.0.0.1:${PORT}.
	Address string `json:"address,omitempty"`
	// system is the path of a host's System. ${HOST}, ${DOMAIN} and ${UUID} stand for the host's
	// own. Default: /redfish/v1/Systems/${UUID}.
	System string `json:"system,omitempty"`
	// dir is the directory that relative names are found from. Left out: that of the file.
	Dir string `json:"dir,omitempty"`
}

// GivenBMC are the variables that the program of BMCs is given, and SystemBMC those of the path of
// a System.
var (
	GivenBMC  = []string{"BMC_PASSWORD", "BMC_USERNAME", "HOSTS", "LIBVIRT_URI", "PORT", "TMPDIR"}
	SystemBMC = []string{"DOMAIN", "HOST", "UUID"}
)

// Program is it as a program, without the defaults.
func (b *BMC) Program() *Program {
	return &Program{Command: b.Command, Args: b.Args, Image: b.Image, Env: b.Env, Dir: b.Dir}
}

// AddressIn is the URL of its service.
func (b *BMC) AddressIn(variables map[string]string) string {
	return expand(cmp.Or(b.Address, "http://127.0.0.1:${PORT}"), variables)
}

// SystemOf is the path of a host's System.
func (b *BMC) SystemOf(host, domain, uuid string) string {
	system := expand(cmp.Or(b.System, "/redfish/v1/Systems/${UUID}"), map[string]string{"HOST": host, "DOMAIN": domain, "UUID": uuid})
	return path.Clean("/" + system)
}
