// Package catalog is the stories that come with fencelab, so that a binary has them wherever it
// runs.
package catalog

import "embed"

// Prefix begins the name of a story, or of a directory of stories, in the catalogue: catalog: are
// all of them, catalog:regression those of a directory.
const Prefix = "catalog:"

// Stories are the files, by directory.
//
//go:embed */*.yaml
var Stories embed.FS
