// Package twice is another.
package twice
