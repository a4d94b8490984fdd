// Package sim is what a world is that nobody looks at.
package sim

// moment is what a clock has, and those are what it tells.
type moment int
