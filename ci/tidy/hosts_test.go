package tidy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// registryShape matches the usual names of registries' and mirrors' hosts.
var registryShape = regexp.MustCompile(`\b(registry|registry-[0-9]|mirrors?|proxy|deb|ftp|pypi|npm|crates)\.[a-z0-9-]+(\.[a-z0-9-]+)*\.?(org|io|net|com|dev)\b`)

// registryHosts lists files that name a host of a package registry: which registry or mirror serves
// a machine is a matter of that machine's own configuration.
func registryHosts(t *tree) (problems []string, err error) {
	hosts := configuredHosts()
	for _, name := range t.files {
		// Checksums name modules, not hosts; and the fixtures of this very rule have to break it.
		if path.Base(name) == "go.sum" || path.Base(name) == "problems.txt" || under(name, "ci/tidy/testdata") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.root, name))
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // a binary
		}
		number := 0
		for line := range bytes.Lines(text) {
			number++
			for _, host := range hosts {
				if bytes.Contains(line, []byte(host)) {
					problems = append(problems, fmt.Sprintf("%s:%d: names %s, a package registry that this machine is configured for: read it from that configuration", name, number, host))
				}
			}
			for _, host := range registryShape.FindAll(line, -1) {
				if !slices.Contains(hosts, string(host)) {
					problems = append(problems, fmt.Sprintf("%s:%d: names %s, by its name a package registry: read it from the machine's configuration", name, number, host))
				}
			}
		}
	}
	return problems, nil
}

var hostInURL = regexp.MustCompile(`https?://(?:[^/@\s]*@)?([A-Za-z0-9.-]+\.[A-Za-z0-9-]+)`)

// configuredHosts are the registries that this machine is configured for.
func configuredHosts() []string {
	var configuration []byte
	if output, err := exec.Command("go", "env", "GOPROXY").Output(); err == nil {
		configuration = append(configuration, output...)
	}
	files := []string{"/etc/apt/sources.list", "/etc/pip.conf", "/etc/npmrc"}
	more, _ := filepath.Glob("/etc/apt/sources.list.d/*") // the pattern is well-formed
	for _, file := range append(files, more...) {
		if text, err := os.ReadFile(file); err == nil {
			configuration = append(configuration, text...)
		}
	}
	var hosts []string
	for _, match := range hostInURL.FindAllSubmatch(configuration, -1) {
		if host := string(match[1]); !strings.HasPrefix(host, "127.") {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
