package history

import "strings"

// MissingLabels returns the labels of wanted that got lacks. All are sets as NodeLabels has them,
// "k=v,k=v"; empty is none.
func MissingLabels(got, wanted string) string {
	if got == wanted {
		return ""
	}
	var missing []string
	for label := range strings.SplitSeq(wanted, ",") {
		if label != "" && !strings.Contains(","+got+",", ","+label+",") {
			missing = append(missing, label)
		}
	}
	return strings.Join(missing, ",")
}

// SharedLabels returns the labels of wanted that got has.
func SharedLabels(got, wanted string) string {
	return MissingLabels(MissingLabels(got, wanted), wanted)
}

// JoinLabels returns a set with all labels of two, in no certain order.
func JoinLabels(a, b string) string {
	if b = MissingLabels(a, b); a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}
