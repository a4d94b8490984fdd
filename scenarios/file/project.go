package file

import (
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// ProjectFile is the name of a project's file. It stands beside the stories of a repository, or
// above.
const ProjectFile = "fencelab.yaml"

// Project holds settings for the stories beside and below its file. The command line overrides
// them.
type Project struct {
	// Module is the Go package with the controllers, as --module has it: DIR, or DIR:NAME.
	Module string `json:"module,omitempty"`
	// Defaults are values of flags, by the verb and the flag.
	Defaults map[string]map[string]any `json:"defaults,omitempty"`
	// Leads accepts leads of run --leads, each with the reason.
	Leads []leads.Accepted `json:"leads,omitempty"`

	// File is the file that it was read from.
	File string `json:"-"`
	doc  *document
}

// FindProject reads the project's file beside a file or directory, or in a directory above, as far
// as the repository or the Go module goes in which that is; nil if there is none.
func FindProject(beside string) (*Project, error) {
	dir, err := filepath.Abs(beside)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	for {
		name := filepath.Join(dir, ProjectFile)
		switch _, err := os.Stat(name); {
		case err == nil:
			return loadProject(name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		_, err := os.Stat(filepath.Join(dir, ".git"))
		above := filepath.Dir(dir)
		if err == nil || isModule(dir) || above == dir {
			return nil, nil
		}
		dir = above
	}
}

func loadProject(name string) (*Project, error) {
	data, err := ReadFile(name)
	if err != nil {
		return nil, err
	}
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, name); err == nil {
			name = short
		}
	}
	p := &Project{File: name, doc: parse(name, data)}
	if p.doc.root != nil {
		p.doc.decode(p)
	}
	if p.Module != "" {
		p.checkModule()
	}
	for i, l := range p.Leads {
		if l.Lead == "" || l.Why == "" {
			p.doc.bad(fmt.Sprintf("leads[%d]", i), "a lead that is accepted has a name, as run --leads prints it before the colon, and a reason: write lead and why")
		}
	}
	return p, p.doc.err()
}

// checkModule finds a directory that isn't there, and a name that no other package could use.
func (p *Project) checkModule() {
	dir, name, named := strings.Cut(p.ModuleFrom(), ":")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		var beside []string
		entries, _ := os.ReadDir(filepath.Dir(dir)) // without one there is nothing near
		for _, entry := range entries {
			if entry.IsDir() {
				beside = append(beside, entry.Name())
			}
		}
		p.doc.bad("module", "%s", unknown("directory", filepath.Base(dir), beside))
		return
	}
	if named && !(token.IsIdentifier(name) && token.IsExported(name)) {
		p.doc.bad("module", "%s is nothing that a Go package exports: name a variable or function, as DIR:Name", phrase.Quote(name))
	}
}

// ModuleFrom is Module as it is called from the working directory.
func (p *Project) ModuleFrom() string {
	dir, name, named := strings.Cut(p.Module, ":")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(p.File), dir)
	}
	if named {
		return dir + ":" + name
	}
	return dir
}

// From is a default's value as it is called from the working directory: what begins with ./ or ../
// is beside the project's file.
func (p *Project) From(value any) string {
	text := fmt.Sprint(value)
	if strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") {
		return filepath.Join(filepath.Dir(p.File), text)
	}
	return text
}

// Bad is an error about a default, with its place.
func (p *Project) Bad(verb, flag, text string) error {
	path := join("defaults", verb)
	if flag != "" {
		path = join(path, flag)
	}
	p.doc.bad(path, "%s", text)
	return p.doc.err()
}

// UnknownFlag says that a verb has no such flag, and which may be meant.
func (p *Project) UnknownFlag(verb, flag string, known []string) error {
	return p.Bad(verb, flag, unknown("flag of "+verb, flag, known))
}

// UnknownVerb says that there is no such verb.
func (p *Project) UnknownVerb(verb string, known []string) error {
	return p.Bad(verb, "", unknown("verb", verb, known))
}
