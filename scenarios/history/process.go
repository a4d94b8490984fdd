package history

import (
	"fmt"
	"strings"
)

// Process returns the name of a controller's n-th process, counted from 1: remediation, then
// remediation-2.
func Process(controller string, n int) string {
	if n == 1 {
		return controller
	}
	return fmt.Sprintf("%s-%d", controller, n)
}

// ControllerOf returns the controller of a process, by the names that Process gives: remediation
// for remediation-2. Any other name is that of a controller.
func ControllerOf(process string) string {
	n := strings.LastIndexByte(process, '-')
	if n < 1 || n == len(process)-1 || strings.Trim(process[n+1:], "0123456789") != "" {
		return process
	}
	return process[:n]
}
