package scenarios

// KindCampaign heads a file that says which schedules of which stories are to be played.
const KindCampaign = "Campaign"

// Campaign is the content of a file of that kind: searches of stories, and what they have to put to
// the test.
type Campaign struct {
	// apiVersion is fencelab.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// kind is Campaign.
	Kind string `json:"kind"`
	// metadata names the campaign.
	Metadata CampaignMetadata `json:"metadata"`
	// spec says what is searched, and how.
	Spec CampaignSpec `json:"spec"`

	// File is the file that it was loaded from, as its user named it.
	File string `json:"-"`
}

// CampaignMetadata names a campaign and says what it is for.
type CampaignMetadata struct {
	// name is the campaign's name: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// description says in a sentence or two what it is for.
	Description string `json:"description"`
}

// CampaignSpec describes the searches of a campaign.
type CampaignSpec struct {
	// stories are files and directories of scenarios, seen from the campaign's file, or such of the
	// catalogue, as in catalog:regression.
	Stories []string `json:"stories"`
	// filter keeps only stories that match all of its terms: name=PATTERN, seed=NUMBER,
	// label=WORD or guarantee=ID.
	Filter []string `json:"filter,omitempty"`
	// except leaves out stories by their names, of which * stands for any part.
	Except []string `json:"except,omitempty"`
	// searches are made in each story.
	Searches []CampaignSearch `json:"searches"`
	// guarantees says in which percentage of its chances each of these guarantees has to be put to
	// the test, by the whole campaign and by each shard. A chance is a schedule of a story whose
	// default schedule tests the guarantee. Any other guarantee has to be tested once if it had a
	// hundred chances.
	Guarantees map[string]int `json:"guarantees,omitempty"`
}

// CampaignSearch is a search of each story.
type CampaignSearch struct {
	// strategy chooses the schedules, as --strategy of fencelab run does.
	Strategy string `json:"strategy"`
	// schedules is how many are played in each story, for each seed. A strategy that ends by itself
	// plays all without it.
	Schedules int `json:"schedules,omitempty"`
	// depth is how many deviations are combined, with orders and portfolio: up to that number, if
	// they meet or one makes the other possible. Default: 1.
	Depth int `json:"depth,omitempty"`
	// within is how late a step comes at most, with orders and portfolio. Default: 90s.
	Within Duration `json:"within,omitempty"`
	// seeds decide the choices of the stories and of the strategy. Default: 1.
	Seeds []uint64 `json:"seeds,omitempty"`
}
