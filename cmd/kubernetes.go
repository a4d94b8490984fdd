package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/cmd/oncluster"
	"github.com/fencelab/fencelab/cmd/store"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/catalog"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// onKubernetes plays a campaign as a Job in the cluster of the current context.
type onKubernetes struct {
	on string
	oncluster.Options
}

func (k *onKubernetes) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&k.on, "on", "", "where to play it instead of on this machine: kubernetes, as an Indexed Job in the current context")
	flags.StringVar(&k.Image, "image", "localhost/fencelab:latest", "image with fencelab, with --on kubernetes")
	flags.StringVar(&k.Claim, "claim", "", "volume claim that takes the blobs, with --on kubernetes")
	flags.StringVar(&k.Secret, "secret", "", "Secret with the variables that reach the --store, with --on kubernetes")
	flags.StringVar(&k.Namespace, "namespace", "", "namespace of the Job, with --on kubernetes (default: that of the context)")
	flags.StringVar(&k.Queue, "queue", "", "queue of Kueue that admits the Job, with --on kubernetes")
	flags.Int32Var(&k.Shards, "shards", 0, "how many shards there are, with --on kubernetes")
	flags.Int32Var(&k.Parallel, "parallel", 0, "how many shards are played at once, with --on kubernetes (default: all)")
}

// looks is how often a Job is looked at.
const looks = 5 * time.Second

// run makes the Job of a campaign, or finds it, and follows it. The error has an exit code.
func (k *onKubernetes) run(cmd *cobra.Command, c *campaigner, name, part string) error {
	switch {
	case k.on != "kubernetes":
		return exit.BadInput(fmt.Errorf("--on %s: choose kubernetes, or leave it out", k.on))
	case part != "":
		return exit.BadInput(errors.New("--shard: with --on kubernetes each index of the Job plays a shard; write --shards N"))
	case (k.Claim == "") == (c.place == "") || k.Shards < 1:
		return exit.BadInput(errors.New("--on kubernetes: say where the blobs go, either to a volume claim with --claim or to a --store, and how many shards there are with --shards"))
	case (k.Secret == "") != (c.place == ""):
		return exit.BadInput(errors.New("--on kubernetes: a --store needs a --secret with " + store.Variables + ", and nothing else does"))
	}
	if c.place != "" {
		if _, _, err := store.Parse(c.place); err != nil {
			return exit.BadInput(err)
		}
	}
	k.Store, c.place = strings.TrimSuffix(c.place, "/"), "" // the Pods go there, not we
	if k.Parallel < 1 {
		k.Parallel = k.Shards
	}
	if err := c.start(cmd); err != nil {
		return err
	}
	loaded, stories, err := file.LoadCampaign(name, Vocabulary())
	if err != nil {
		return exit.BadInput(err)
	}
	if k.Files, k.File, err = filesOf(name, loaded.Spec.Stories); err != nil {
		return exit.BadInput(err)
	}
	if err := c.serve(cmd.Context(), loaded.Metadata.Name); err != nil {
		return err
	}
	k.Name = oncluster.NameOf(loaded.Metadata.Name, shard.DigestOf(loaded, stories))
	cluster, namespace, err := oncluster.Connect(k.Namespace)
	if err != nil {
		return exit.Coded(exit.Environment, err)
	}
	k.Namespace = namespace
	objects, err := oncluster.Objects(k.Options)
	if err != nil {
		return exit.BadInput(err)
	}
	if err := oncluster.Create(cmd.Context(), cluster, objects); err != nil {
		return exit.Coded(exit.Environment, err)
	}
	c.Say("Job %s/%s\n", k.Namespace, k.Name)
	last, trouble, follower := "", "", oncluster.NewFollower(cluster, k.Key())
	s, err := follower.Follow(cmd.Context(), looks, func(s *oncluster.State, err error) {
		text := ""
		switch {
		case err != nil:
			text = "the cluster doesn't answer: " + phrase.FirstLine(err.Error())
		case s.Suspended:
			text = "suspended: its queue has not admitted it yet"
		default:
			text = fmt.Sprintf("%d of %d shards are whole, %s failed", s.Done, s.Of, phrase.Count(s.Failed, "Pod"))
		}
		if text != last {
			c.Say("  %s\n", text)
		}
		last = text
		if err == nil && s.Trouble != "" && s.Trouble != trouble {
			c.Say("    %s\n", s.Trouble)
			trouble = s.Trouble
		}
		c.metrics.followed(s, follower.Summaries)
	})
	switch {
	case cmd.Context().Err() != nil:
		return exit.Coded(exit.Interrupted, err)
	case err != nil:
		return exit.Coded(exit.Environment, err)
	}
	schedules, failed := 0, 0
	for _, summary := range follower.Summaries { // order does not matter
		schedules, failed = schedules+summary.Schedules, failed+summary.Failed
	}
	c.Print("%s: %d of %d shards are whole; %s and %d of them failed, by the Pods that were seen\n", k.Name, s.Done, s.Of, phrase.Count(schedules, "schedule"), failed)
	if k.Store != "" {
		c.Print("  fencelab campaign merge %s/%s judges the blobs\n", k.Store, k.Name)
	} else {
		c.Print("  the blobs are on the claim %s, in %s: fencelab campaign merge judges them, where that is mounted\n", k.Claim, k.Name)
	}
	if s.Done < s.Of {
		c.Print("  the Job has ended: %s\n", s.Why)
		return exit.Ended(exit.Unknown)
	}
	return nil
}

// filesOf reads the files of a campaign, by their paths from a directory that all of them are in.
func filesOf(name string, stories []string) (files map[string][]byte, own string, err error) {
	name, err = filepath.Abs(name)
	if err != nil {
		return nil, "", err
	}
	root, all := filepath.Dir(name), []string{name}
	for _, story := range stories {
		if strings.HasPrefix(story, catalog.Prefix) {
			continue
		}
		if filepath.IsAbs(story) {
			return nil, "", fmt.Errorf("%s: a cluster doesn't have it there: name it from the campaign's file", story)
		}
		err := filepath.WalkDir(filepath.Join(filepath.Dir(name), story), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && (filepath.Ext(path) == ".yaml" || filepath.Ext(path) == ".yml") {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			return nil, "", err
		}
	}
	for _, path := range all {
		for !strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			root = filepath.Dir(root)
		}
	}
	files = make(map[string][]byte)
	for _, path := range all {
		below, err := filepath.Rel(root, path)
		if err == nil {
			files[filepath.ToSlash(below)], err = os.ReadFile(path)
		}
		if err != nil {
			return nil, "", err
		}
	}
	below, err := filepath.Rel(root, name)
	return files, filepath.ToSlash(below), err
}

// summarize writes what a shard found in short, if that is wanted.
func summarize(name string, r *shard.Result, number int) error {
	if name == "" {
		return nil
	}
	s := oncluster.Summary{Shard: number, Schedules: r.Schedules, Digest: r.Digest}
	for _, f := range r.Findings {
		if s.Failed += f.Count; len(s.Findings) < oncluster.Room {
			s.Findings = append(s.Findings, f.Key)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
