package file

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/catalog"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// LoadCampaign reads the campaign in a file, with the strictness of Load, and its stories.
func LoadCampaign(file string, vocab Vocabulary) (*scenarios.Campaign, []*scenarios.Scenario, error) {
	data, err := ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	c := &scenarios.Campaign{File: file}
	doc := parse(file, data)
	var stories []*scenarios.Scenario
	if doc.head(scenarios.KindCampaign) {
		doc.decode(c)
		v := newValidator(doc, vocab, &scenarios.Spec{})
		v.campaign(c)
		if len(doc.problems) == 0 {
			stories, err = v.storiesOf(c)
		}
	}
	return c, stories, errors.Join(err, doc.err())
}

// campaign checks what a campaign says, but for its stories.
func (v *validator) campaign(c *scenarios.Campaign) {
	if !dnsLabel.MatchString(c.Metadata.Name) {
		v.Bad("metadata.name", "%s is not a valid name: use lower-case letters, digits and dashes", phrase.Quote(c.Metadata.Name))
	}
	if len(c.Spec.Stories) == 0 {
		v.Bad("spec.stories", "is empty: without any nothing is searched")
	}
	if len(c.Spec.Searches) == 0 {
		v.Bad("spec.searches", "is empty: without any nothing is searched")
	}
	for i, term := range c.Spec.Filter {
		if err := new(Filter).Set(term); err != nil {
			v.Bad(fmt.Sprintf("spec.filter[%d]", i), "%s", phrase.OneLine(err))
		}
	}
	for i, search := range c.Spec.Searches {
		at := fmt.Sprintf("spec.searches[%d]", i)
		kind, known := v.vocab.Strategies[search.Strategy]
		switch {
		case v.vocab.Strategies == nil:
		case !known:
			v.OneOf(at+".strategy", "strategy", search.Strategy, slices.Sorted(maps.Keys(v.vocab.Strategies)))
		case !kind.Ends && search.Schedules == 0:
			v.Bad(at, "%s has no end: say how many schedules it plays", search.Strategy)
		case !kind.Combines && search.Depth != 0:
			v.Bad(at+".depth", "%s combines no deviations: leave it out, or choose orders or portfolio", search.Strategy)
		case !kind.Combines && search.Within != 0:
			v.Bad(at+".within", "%s has delays of its own: leave it out, or choose orders or portfolio", search.Strategy)
		case search.Depth > 1 && !kind.Learns && search.Schedules > 0:
			v.Bad(at+".depth", "is played to its end: leave out schedules, and bound it by within")
		case search.Depth > 1 && kind.Learns && search.Schedules == 0:
			v.Bad(at+".depth", "%s needs schedules: what plays all has nothing to learn, so choose orders for that", search.Strategy)
		}
		if search.Depth < 0 {
			v.Bad(at+".depth", "must be at least 1")
		}
		if search.Schedules < 0 {
			v.Bad(at+".schedules", "must be at least 1")
		}
		for j, seed := range search.Seeds {
			if slices.Index(search.Seeds, seed) < j {
				v.Bad(fmt.Sprintf("%s.seeds[%d]", at, j), "%d is listed twice: the same schedules would be played again", seed)
			}
		}
		for j, other := range c.Spec.Searches[:i] {
			if other.Strategy == search.Strategy && other.Depth == search.Depth && other.Within == search.Within {
				v.Bad(at+".strategy", "%s is already that of spec.searches[%d]: add its seeds there", phrase.Quote(search.Strategy), j)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Spec.Guarantees)) {
		at := join("spec.guarantees", id)
		if v.OneOf(at, "guarantee", id, v.invariants); c.Spec.Guarantees[id] < 1 || c.Spec.Guarantees[id] > 100 {
			v.Bad(at, "is a percentage: write a number from 1 to 100")
		}
	}
}

// played is the world in which a campaign is played: stories of others alone are none of its.
const played = "sim"

// storiesOf loads the stories of a campaign. What is wrong with their files is an error of theirs.
func (v *validator) storiesOf(c *scenarios.Campaign) ([]*scenarios.Scenario, error) {
	var paths []string
	for i, story := range c.Spec.Stories {
		if !strings.HasPrefix(story, catalog.Prefix) && !filepath.IsAbs(story) {
			story = filepath.Join(filepath.Dir(c.File), story)
		}
		if _, err := scenarioFiles(story); err != nil && !strings.HasPrefix(story, catalog.Prefix) {
			v.Bad(fmt.Sprintf("spec.stories[%d]", i), "%s", phrase.OneLine(err))
		}
		paths = append(paths, story)
	}
	if len(v.doc.problems) > 0 {
		return nil, nil
	}
	all, err := LoadFiles(paths, v.vocab, nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *scenarios.Scenario) bool {
		elsewhere := len(s.Spec.Worlds) > 0 && !slices.Contains(s.Spec.Worlds, played)
		if i := slices.Index(paths, s.File); elsewhere && i >= 0 {
			v.Bad(fmt.Sprintf("spec.stories[%d]", i), "can be told in %s only, and a campaign is played in the simulator", strings.Join(s.Spec.Worlds, " and "))
		}
		return elsewhere
	})
	var filter Filter
	for _, term := range c.Spec.Filter {
		_ = filter.Set(term) // it was checked
	}
	if all, err = filter.Of(all); err != nil {
		v.Bad("spec.filter", "none of the stories matches")
	}
	for i, pattern := range c.Spec.Except {
		before := len(all)
		all = slices.DeleteFunc(all, func(s *scenarios.Scenario) bool {
			fits, err := path.Match(pattern, s.Metadata.Name)
			return err == nil && fits
		})
		if len(all) == before {
			v.Bad(fmt.Sprintf("spec.except[%d]", i), "%s is the name of no story", phrase.Quote(pattern))
		}
	}
	if len(all) == 0 {
		v.Bad("spec.except", "leaves out every story")
	}
	return all, nil
}
