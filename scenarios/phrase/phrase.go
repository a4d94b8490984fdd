// Package phrase is how messages put things: names that were mistyped, texts of a file that
// can be anything, numbers of things.
package phrase

import (
	"fmt"
	"strings"
)

// Quote quotes a user's text, shortened.
func Quote(s string) string {
	if short := Shorten(s); short != s {
		return fmt.Sprintf("%q...", strings.TrimSuffix(short, "..."))
	}
	return fmt.Sprintf("%q", s)
}

// Shorten keeps what is long out of messages.
func Shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// OneLine renders an error in one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// FirstLine is a text without what an error adds below it, such as the output of a command
// that failed.
func FirstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// Count is a number of things: "1 scenario", "2 scenarios".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Times says how often: "once", "2 times".
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// OneOf names what there is to choose from, two things at least: "a, b or c".
func OneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
