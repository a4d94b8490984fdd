// Package manifests holds what fencelab's controllers need in a cluster, as YAML:
// their CustomResourceDefinitions, their roles, and the admission policies that
// let only named roles ask for a reboot (seed 002's risk section).
//
// The definitions are for clusters that have neither Metal3 nor Cluster API, such
// as the lab's. They replace those of either: create them, don't apply them over
// what is there.
package manifests

import "embed"

//go:generate sh generate.sh

// FS holds crds/*.yaml, rbac.yaml and policy.yaml.
//
//go:embed crds/*.yaml rbac.yaml policy.yaml
var FS embed.FS
