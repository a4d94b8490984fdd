package shard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios"
)

// surveyed is the file that keeps a survey. An equal program finds out the same, and another one
// would not.
type surveyed struct {
	Program  string   `json:"program"`
	Searches []Search `json:"searches"`
}

// SurveyFile is where the survey of a campaign is kept in a directory, for the shards and tries
// that follow.
func SurveyFile(dir string, c *scenarios.Campaign, stories []*scenarios.Scenario) string {
	return filepath.Join(dir, c.Metadata.Name+"-"+DigestOf(c, stories)+".survey")
}

// LoadSurvey reads what an equal program has found out. There is nothing if none has.
func LoadSurvey(name, program string) []Search {
	data, err := os.ReadFile(name)
	var s surveyed
	if err != nil || json.Unmarshal(data, &s) != nil || s.Program != program {
		return nil // it is found out again
	}
	return s.Searches
}

// SaveSurvey keeps a survey, whole or not at all: several shards may do so at once.
func SaveSurvey(name, program string, searches []Search) error {
	data, err := json.Marshal(surveyed{program, searches})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(filepath.Dir(name), "survey-")
	}
	if err == nil {
		_, err = f.Write(data)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err == nil {
			err = os.Chmod(f.Name(), 0o644)
		}
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			_ = os.Remove(f.Name()) // it may be there
		}
	}
	if err != nil {
		return fmt.Errorf("keep the survey of the campaign: %w", err)
	}
	return nil
}
