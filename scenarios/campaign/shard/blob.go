package shard

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Extension ends the names of blobs.
const Extension = ".blob"

// Header begins a blob. Two blobs whose headers agree on all but the shard can be merged.
type Header struct {
	Version   string `json:"fencelab"`
	Campaign  string `json:"campaign"`
	Digest    string `json:"digest"`
	Behaviour string `json:"behaviour"`
	// Shard and Of say which part of which partition it is, From and To which jobs those are.
	Shard int `json:"shard"`
	Of    int `json:"of"`
	From  int `json:"from"`
	To    int `json:"to"`
	// Jobs and Schedules count those of the whole campaign.
	Jobs      int            `json:"jobs"`
	Schedules int            `json:"schedules"`
	Promised  map[string]int `json:"promised,omitempty"`
}

// Record holds the results of a job.
type Record struct {
	Job
	Tally campaign.Tally `json:"tally"`
	// Digest identifies what came of each schedule.
	Digest string `json:"digest"`
	// Story is there if a schedule failed: whoever merges shrinks it.
	Story *campaign.Story `json:"story,omitempty"`
}

// Trailer ends a blob that is whole. Digest is that of all before it.
type Trailer struct {
	Jobs      int    `json:"jobs"`
	Schedules int    `json:"schedules"`
	Digest    string `json:"digest"`
}

// line is one of a blob: a header; a search before the first record of it; a record; or a trailer.
type line struct {
	Header  *Header  `json:"header,omitempty"`
	Number  int      `json:"number,omitempty"`
	Search  *Search  `json:"search,omitempty"`
	Record  *Record  `json:"record,omitempty"`
	Trailer *Trailer `json:"trailer,omitempty"`
}

// Writer writes the blob of a shard, record by record.
type Writer struct {
	// Name is the file's.
	Name string
	// Left are the jobs that are not in it yet, in the order in which it wants them.
	Left []Job
	// Trailer is there once it is whole.
	Trailer *Trailer

	file     *os.File
	outline  *Outline
	sum      hash.Hash
	so       Trailer
	searched int
}

// BlobFile is the name of a shard's blob in a directory.
func BlobFile(dir string, o *Outline, shard, of int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%s-%d-of-%d%s", o.Campaign, o.Digest, shard, of, Extension))
}

// Open opens the blob of a shard in a directory. What is there of it already is kept.
func Open(dir string, o *Outline, shard, of int) (*Writer, error) {
	jobs, err := o.Shard(shard, of)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("keep what the shard finds: %w", err)
	}
	w := &Writer{Name: BlobFile(dir, o, shard, of), Left: jobs, outline: o, sum: sha256.New(), searched: -1}
	if w.file, err = os.OpenFile(w.Name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("keep what the shard finds: %w", err)
	}
	own := Header{
		Version: o.Version, Campaign: o.Campaign, Digest: o.Digest, Behaviour: o.Behaviour(), Shard: shard, Of: of,
		From: jobs[0].Index, To: jobs[len(jobs)-1].Index + 1, Jobs: len(o.Jobs), Schedules: o.Schedules, Promised: o.Promised,
	}
	kept, begun := int64(0), false
	_, err = scan(w.file, func(text []byte, l line) error {
		switch {
		case l.Header != nil:
			begun = true
			if err := l.Header.fits(own, w.Name, "this campaign"); err != nil {
				return fmt.Errorf("%w; remove the file, or name another directory", err)
			}
		case l.Search != nil:
			w.searched = l.Number - 1
		case l.Record != nil && (len(w.Left) == 0 || l.Record.Job != w.Left[0]):
			return fmt.Errorf("its job %d is none of the next of this shard; remove the file, or name another directory", l.Record.Index)
		case l.Record != nil:
			w.count(*l.Record)
		}
		w.Trailer = l.Trailer
		w.note(text)
		kept += int64(len(text))
		return nil
	})
	if err == nil && w.Trailer == nil {
		if err = w.file.Truncate(kept); err == nil {
			_, err = w.file.Seek(kept, io.SeekStart)
		}
		if err == nil && !begun {
			err = w.write(line{Header: &own})
		}
	}
	if err != nil {
		_ = w.file.Close() // nothing was lost
		return nil, fmt.Errorf("go on with %s: %w", w.Name, err)
	}
	return w, nil
}

// Add writes what came of the next of the jobs that are left.
func (w *Writer) Add(r Record) error {
	if r.Search != w.searched {
		if err := w.write(line{Number: r.Search + 1, Search: &w.outline.Searches[r.Search]}); err != nil {
			return err
		}
	}
	w.count(r)
	return w.write(line{Record: &r})
}

func (w *Writer) count(r Record) {
	w.searched, w.Left = r.Search, w.Left[1:]
	w.so.Jobs, w.so.Schedules = w.so.Jobs+1, w.so.Schedules+r.Tally.Tried
}

func (w *Writer) note(text []byte) { w.sum.Write(text) } // a hash never fails

func (w *Writer) write(l line) error {
	text, err := json.Marshal(l)
	if err == nil {
		text = append(text, '\n')
		w.note(text)
		_, err = w.file.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", w.Name, err)
	}
	return nil
}

// Close closes the blob. If nothing is left, it is whole.
func (w *Writer) Close() (err error) {
	if w.Trailer == nil && len(w.Left) == 0 {
		w.so.Digest = hex.EncodeToString(w.sum.Sum(nil))
		if err = w.write(line{Trailer: &w.so}); err == nil {
			err = w.file.Sync()
		}
		w.Trailer = &w.so
	}
	return errors.Join(err, w.file.Close())
}

// fits says why blobs with these headers can't be merged, or why one can't be gone on with.
func (h *Header) fits(other Header, name, from string) error {
	for _, row := range []struct{ what, own, others string }{
		{"the campaign", h.Campaign + " (" + h.Digest + ")", other.Campaign + " (" + other.Digest + ")"},
		{"fencelab", h.Version, other.Version},
		{"programs that behave as", h.Behaviour, other.Behaviour},
	} {
		if row.own != row.others {
			return fmt.Errorf("%s is of %s %s, and %s of %s", name, row.what, row.own, from, row.others)
		}
	}
	return nil
}

var errDamaged = errors.New("it is damaged: its digest is not that of what it holds; play its shard again")

// scan reads the lines of a blob, as far as they are whole, and reports whether all are.
func scan(r io.Reader, take func(text []byte, l line) error) (whole bool, err error) {
	sum := sha256.New()
	for in := bufio.NewReader(r); ; {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil
		} else if err != nil {
			return false, err
		}
		from := json.NewDecoder(bytes.NewReader(text))
		from.DisallowUnknownFields()
		var l line
		if from.Decode(&l) != nil || whole {
			return false, nil
		}
		if l.Trailer != nil {
			if l.Trailer.Digest != hex.EncodeToString(sum.Sum(nil)) {
				return false, errDamaged
			}
			whole = true
		}
		sum.Write(text)
		if err := take(text, l); err != nil {
			return false, err
		}
	}
}
