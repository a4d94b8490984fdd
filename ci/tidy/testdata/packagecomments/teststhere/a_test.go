// Package teststhere holds tests.
package teststhere
