// Package manifests holds the YAML that fencelab's controllers need in a cluster: their
// CustomResourceDefinitions, their roles, and the admission policies that let only named roles ask
// for a reboot (seed 002's risk section).
//
// The definitions are for clusters that have neither Metal3 nor Cluster API, such as the lab's.
// They replace those of either project: create them, don't apply them over existing ones.
package manifests

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"io/fs"
)

//go:generate sh generate.sh

// FS holds crds/*.yaml, rbac.yaml and policy.yaml.
//
//go:embed crds/*.yaml rbac.yaml policy.yaml
var FS embed.FS

// Agent is a DaemonSet of agents, which also needs the manifests in FS.
//
//go:embed agent.yaml
var Agent []byte

// Write writes every manifest as one stream of documents, the CRDs first.
func Write(w io.Writer) error {
	return fs.WalkDir(FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := FS.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", bytes.TrimPrefix(data, []byte("---\n")))
		return err
	})
}
