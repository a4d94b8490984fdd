// Package ci holds the pipeline that fencelab init writes into a repository, as docs/ci.md has it.
package ci

import _ "embed"

// Workflow is a workflow of GitHub Actions, and Script plays the stories that it names.
//
//go:embed workflow.yaml
var Workflow string

// Script plays stories, and leaves what CI shows of them.
//
//go:embed stories.sh
var Script string
