package scenarios

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Duration is a length of time that is written with its unit: 20s, 1m30s.
type Duration time.Duration

// MarshalJSON writes the duration as a string with units.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a string with units. A number without one is refused, and
// so is a negative duration.
func (d *Duration) UnmarshalJSON(data []byte) error {
	parsed, err := parseDuration(data)
	*d = Duration(parsed)
	return err
}

// Span is a duration, or a range of them out of which Compile picks one: 10s or
// 10s..20s.
type Span struct {
	Min, Max time.Duration
}

// MarshalJSON writes the span as a string.
func (s Span) MarshalJSON() ([]byte, error) {
	if s.Min == s.Max {
		return json.Marshal(s.Min.String())
	}
	return json.Marshal(s.Min.String() + ".." + s.Max.String())
}

// UnmarshalJSON reads 10s or 10s..20s.
func (s *Span) UnmarshalJSON(data []byte) error {
	parsed, err := parseSpan(data)
	*s = parsed
	return err
}

func parseDuration(data []byte) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return 0, fmt.Errorf("%s is not a duration: write it with its unit, such as 20s", data)
	}
	return ParseDuration(text)
}

// ParseDuration reads a duration with its unit; a negative one is an error, and so is one that is
// too long to be added to others.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration: write it with its unit, such as 20s or 1m30s", text)
	case d < 0:
		return 0, fmt.Errorf("%q is a negative duration", text)
	case d > maxDuration:
		return 0, fmt.Errorf("%q is longer than %s", text, maxDuration)
	}
	return d, nil
}

// maxDuration keeps sums of durations far from overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

func parseSpan(data []byte) (Span, error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return Span{}, fmt.Errorf("%s is not a duration: write it with its unit, such as 20s or 10s..20s", data)
	}
	from, to, isRange := strings.Cut(text, "..")
	low, err := ParseDuration(strings.TrimSpace(from))
	if err != nil {
		return Span{}, err
	}
	if !isRange {
		return Span{low, low}, nil
	}
	high, err := ParseDuration(strings.TrimSpace(to))
	if err != nil {
		return Span{}, err
	}
	if high < low {
		return Span{}, fmt.Errorf("%q ends before it begins", text)
	}
	return Span{low, high}, nil
}
