// Command fencelab runs fencing scenarios in the deterministic simulator and in
// the real lab, and says which guarantees held.
package main

import "github.com/fencelab/fencelab/program"

func main() { program.Main() }
