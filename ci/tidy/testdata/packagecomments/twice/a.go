// Package twice is one thing.
package twice
