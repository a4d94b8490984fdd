package history

import "strings"

// MissingLabels are those that got lacks of wanted. All are sets as NodeLabels has them, "k=v,k=v"; empty is none.
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
