// Package none is introduced in the wrong place.
package none
