package phrase

// Nearest returns the candidate that a mistyped name most likely means, for "did
// you mean" in errors, or "" when none is near: at most one edit in three letters
// of the name. Letter case doesn't count. Of equally near candidates the first
// is returned.
func Nearest(name string, candidates []string) string {
	typed := fold(name)
	best, limit := "", len(typed)/3+1
	for _, candidate := range candidates {
		// The edits are at least as many as the lengths differ by, which keeps
		// an absurdly long name from costing anything.
		if diff := len(candidate) - len(name); diff > limit || -diff > limit {
			continue
		}
		if d := distance(typed, fold(candidate)); d < limit || d == limit && best == "" {
			best, limit = candidate, d
		}
	}
	return best
}

// fold lowers ASCII letters: every name in a scenario file is ASCII.
func fold(s string) []byte {
	folded := []byte(s)
	for i, c := range folded {
		if 'A' <= c && c <= 'Z' {
			folded[i] = c + 'a' - 'A'
		}
	}
	return folded
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b []byte) int {
	// rows[i%3] is row i of the usual table; a swap looks two rows back.
	var rows [3][]int
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, above, above2 := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
