package file

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/catalog"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// LoadFiles reads the scenario files and all those in the directories, each once and
// in order, with every cell of their matrices, and returns all errors at once. Values are
// given to the parameters of those files that have them; at least one has to.
func LoadFiles(paths []string, vocabulary Vocabulary, given Values) ([]*scenarios.Scenario, error) {
	var loaded []*scenarios.Scenario
	names := map[string]string{}
	taken := map[string]bool{}
	err := EachFile(paths, func(file string, data []byte) error {
		cells, err := LoadCells(file, data, vocabulary, given)
		if err != nil {
			return err
		}
		loaded = append(loaded, cells...)
		dir, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return err
		}
		for _, s := range cells {
			s.File = file
			placed(dir, s.Spec.Controllers, s.Spec.Topology.Ironic, s.Spec.Topology.BMC)
			if other, ok := names[s.Metadata.Name]; ok {
				return fmt.Errorf("%s: the name %s is already used by %s", file, s.Metadata.Name, other)
			}
			names[s.Metadata.Name] = file
			for _, p := range s.Parameters {
				taken[p.Name] = true
			}
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err == nil && !taken[name] {
			err = fmt.Errorf("--set %s: %s", name, unknown("parameter", name, slices.Sorted(maps.Keys(taken))))
		}
	}
	return loaded, err
}

// EachFile does something with each scenario file of the paths, which are files and
// directories, or such of the catalogue, and joins the errors.
func EachFile(paths []string, do func(file string, data []byte) error) error {
	var failures []error
	var seen []os.FileInfo
	taken := make(map[string]bool) // of the catalogue
	for _, path := range paths {
		if name, ok := strings.CutPrefix(path, catalog.Prefix); ok {
			failures = append(failures, eachOfCatalog(name, taken, do))
			continue
		}
		files, err := scenarioFiles(path)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, file := range files {
			if file != path && kindOf(file) != "" {
				continue // says what the stories are played with, or how often
			}
			info, err := os.Stat(file)
			if err == nil && slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				continue // named twice
			}
			seen = append(seen, info)
			data, err := ReadFile(file)
			if err == nil {
				err = do(file, data)
			}
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// eachOfCatalog does something with a story of the catalogue, or with each in a directory there,
// but not with those that were taken.
func eachOfCatalog(name string, taken map[string]bool, do func(file string, data []byte) error) error {
	var failures []error
	err := fs.WalkDir(catalog.Stories, cmp.Or(path.Clean(name), "."), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || taken[file] {
			return err
		}
		taken[file] = true
		data, err := catalog.Stories.ReadFile(file)
		if err == nil {
			err = do(catalog.Prefix+file, data)
		}
		failures = append(failures, err)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		var directories, all []string
		_ = fs.WalkDir(catalog.Stories, ".", func(file string, entry fs.DirEntry, _ error) error { // which is always there
			if entry.IsDir() && file != "." {
				directories = append(directories, file)
			}
			all = append(all, file)
			return nil
		})
		meant := "it has the directories " + strings.Join(directories, ", ")
		if nearest := phrase.Nearest(name, all); nearest != "" {
			meant = "did you mean " + catalog.Prefix + nearest + "?"
		}
		err = fmt.Errorf("%s%s: the catalogue has no such story or directory; %s", catalog.Prefix, name, meant)
	}
	return errors.Join(append(failures, err)...)
}

// scenarioFiles returns the file itself, or the .yaml and .yml files below a directory, but for a
// project's. Hidden ones are somebody else's, and so is a Go module of its own: only its tests know
// its controllers.
func scenarioFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	root := path + string(filepath.Separator) // so that a link to a directory is followed
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		hidden := file != root && strings.HasPrefix(filepath.Base(file), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || file != root && isModule(file)):
			return fs.SkipDir
		case filepath.Base(file) == ProjectFile: // says how the others are played
		case !entry.IsDir() && !hidden && (filepath.Ext(file) == ".yaml" || filepath.Ext(file) == ".yml"):
			files = append(files, filepath.Clean(file))
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: the directory has no .yaml or .yml file", path)
	}
	return files, err
}

// kindOf is the kind of a file that is about stories and has none, as far as it can be read, or "".
func kindOf(file string) string {
	data, err := ReadFile(file)
	if err != nil {
		return ""
	}
	var nodes [1]yaml.Node
	if n, err := parseYAML(bytes.NewReader(data), nodes[:]); err != nil || n == 0 {
		return ""
	}
	var head struct {
		Kind string `yaml:"kind"`
	}
	if nodes[0].Decode(&head) != nil || head.Kind != scenarios.KindSystem && head.Kind != scenarios.KindCampaign {
		return ""
	}
	return head.Kind
}

// LintOthers checks the systems and the campaigns among files and those in directories, and returns
// how many there are of each kind, and the other paths.
func LintOthers(paths []string, vocabulary Vocabulary) (found map[string]int, others []string, err error) {
	var failures []error
	found = make(map[string]int)
	for _, path := range paths {
		if strings.HasPrefix(path, catalog.Prefix) {
			others = append(others, path)
			continue
		}
		files, err := scenarioFiles(path)
		if err != nil {
			others = append(others, path) // whoever reads it says why
			continue
		}
		stories := 0
		for _, file := range files {
			switch kind := kindOf(file); kind {
			case scenarios.KindSystem:
				found[kind]++
				_, err = LoadSystem(file, vocabulary)
			case scenarios.KindCampaign:
				found[kind]++
				_, _, err = LoadCampaign(file, vocabulary)
			default:
				stories++
				continue
			}
			failures = append(failures, err)
		}
		if stories > 0 {
			others = append(others, path)
		}
	}
	return found, others, errors.Join(failures...)
}

// ReadFile reads a scenario or a plan. What is no regular file could be endless, or
// never answer; and what is too large is not read at all.
func ReadFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", file)
	case info.Size() > MaxSize:
		return nil, fmt.Errorf("%s: the file has %d bytes, but a scenario has at most %d", file, info.Size(), MaxSize)
	}
	return os.ReadFile(file)
}

// LoadPlanFile reads the plan in a file.
func LoadPlanFile(file string, vocabulary Vocabulary) (*scenarios.Plan, error) {
	data, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	plan, err := LoadPlan(file, data, vocabulary)
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	placed(here, plan.Spec.Controllers, plan.Spec.Topology.Ironic, plan.Spec.Topology.BMC)
	return plan, err
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// placed makes the names of files those beside the file in dir that names them.
func placed(dir string, programs []scenarios.Controller, ironic *scenarios.Ironic, bmc *scenarios.BMC) {
	in := func(name *string) {
		if !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
	for i := range programs {
		if p := programs[i].Program; p != nil {
			in(&p.Dir)
			p.Image = p.Image.In(p.Dir)
		}
		if p := programs[i].Pods; p != nil {
			in(&p.Dir)
		}
	}
	if ironic != nil && ironic.Bin != "" {
		in(&ironic.Bin)
	}
	if ironic != nil {
		ironic.Image = ironic.Image.In(dir)
	}
	if bmc != nil {
		in(&bmc.Dir)
		bmc.Image = bmc.Image.In(bmc.Dir)
	}
}
