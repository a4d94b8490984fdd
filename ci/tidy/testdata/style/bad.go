// Package bad is a package with comments that readers stumble over.
package bad

// Who waits does so for long. It is a client, be it that nobody answers, whose finalizers have the word and whose state has changed so short ago.
func wait() {}

// Of several clients one waits.
var one = 1

/* general is a comment of the other kind, and as wide as one that is broken at no column whatever it says to readers. */
