package scenarios

import "regexp"

// Grammars of names and values that operations and the health check have.
var (
	NumberRange   = regexp.MustCompile(`^\[([0-9]{1,4})-([0-9]{1,4})\]$`)
	QualifiedName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)
