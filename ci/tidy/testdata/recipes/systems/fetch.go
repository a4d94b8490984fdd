package systems

import "os/exec"

var fetch = exec.Command("git", "clone", "https://github.com/example/operator")
