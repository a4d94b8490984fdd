// Package recording takes a mockup of a Redfish service: a directory for each resource, in the
// format of DMTF's mockup tools, which package redfish serves. It only reads, one resource at a
// time and slowly, since a BMC is easily asked too much.
package recording

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	root     = "/redfish/v1"
	metadata = root + "/$metadata"
	// raw is what has been read, as it was read, until all is: then it is written without what
	// tells whose it is, and removed.
	raw = ".raw"
	// refused notes beside a resource that could not be read why not.
	refused = "refused.txt"

	maxBody     = 4 << 20
	maxPages    = 100
	readTimeout = 2 * time.Minute
)

// Options say what is recorded, and how.
type Options struct {
	// URL is the address of the service, without a path.
	URL string
	// Username and Password are sent with each read, as Basic authentication; empty ones with none.
	Username, Password string
	// Insecure accepts any certificate, as BMCs have.
	Insecure bool
	// Pause is how long it waits between two reads.
	Pause time.Duration
	// Skip are patterns of paths that are not read, as those of path.Match; a path below one is not
	// read either.
	Skip []string
	// Keep are kinds of values, of [Kinds], that are written as they are.
	Keep []string
	// Say gets reports of progress; may be nil.
	Say func(format string, args ...any)
}

// Volatile are the paths that are skipped by default: they say what happened, and can be endless.
var Volatile = []string{
	root + "/*/*/LogServices/*/Entries", root + "/JsonSchemas", root + "/SessionService/Sessions/*", root + "/Sessions/*", root + "/TaskService/Tasks/*",
	root + "/TelemetryService/*/*",
}

// Recorded is what came of it.
type Recorded struct {
	Resources int
	// Refused are the paths that could not be read, each with the reason.
	Refused []string
	// Replaced are the kinds of values that have others now.
	Replaced []Replaced
}

// ErrInput is what is wrong with what was asked for.
var ErrInput = errors.New("that can't be done")

// service is the address of one, without a path.
func service(address string) (*url.URL, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%w: name the service as http://HOST:PORT or https://HOST", ErrInput)
	}
	return base, nil
}

// transport is the way to a service, which accepts any certificate if it is insecure.
func transport(insecure bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: insecure}
	return t
}

type recorder struct {
	Options
	client  *http.Client
	base    *url.URL
	dir     string
	refused []string
	read    int
	said    time.Time
}

// Record reads a service into a new directory, or goes on with one that it was interrupted in. What
// tells whose the service is, or lets somebody in, has another name in the directory, the same
// wherever it stands: see [Kinds].
func Record(ctx context.Context, dir string, o Options) (*Recorded, error) {
	base, err := service(o.URL)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", o.URL, err)
	}
	for _, pattern := range o.Skip {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("skip %s: %w: %w", pattern, ErrInput, err)
		}
	}
	for _, kind := range o.Keep {
		if !slices.Contains(Kinds(), kind) {
			return nil, fmt.Errorf("keep %s: %w: the kinds are %s", kind, ErrInput, strings.Join(Kinds(), ", "))
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("record %s: %w", o.URL, err)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == raw }) {
		return nil, fmt.Errorf("record %s: %w: %s is not empty, and no recording that was interrupted: name a new directory", o.URL, ErrInput, dir)
	}
	transport := transport(o.Insecure)
	transport.MaxConnsPerHost = 1
	defer transport.CloseIdleConnections()
	r := &recorder{
		Options: o, base: base, dir: filepath.Join(dir, raw), said: time.Now(),
		client: &http.Client{Transport: transport, Timeout: readTimeout, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
			if next.URL.Host != base.Host {
				return fmt.Errorf("it leads to %s, which is another service", next.URL.Host)
			}
			return nil
		}},
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil { // what is there is somebody's
		return nil, fmt.Errorf("record %s: %w", o.URL, err)
	}
	if err := r.crawl(ctx); err != nil {
		return nil, fmt.Errorf("record %s: %w", o.URL, err)
	}
	recorded, err := disguise(r.dir, dir, o.Keep)
	if err == nil {
		err = os.RemoveAll(r.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("write the recording of %s: %w", o.URL, err)
	}
	recorded.Refused = r.refused
	return recorded, nil
}

// crawl reads the root and all that it leads to.
func (r *recorder) crawl(ctx context.Context) error {
	queue, seen := []string{root, metadata}, map[string]bool{root: true, metadata: true}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		data, err := r.resource(ctx, at)
		if err != nil {
			return err
		}
		for _, next := range linksIn(data) {
			if seen[next] {
				continue
			}
			seen[next] = true
			if !r.skips(next) {
				queue = append(queue, next)
			} else if err := r.leaveOut(next); err != nil {
				return err
			}
		}
		if r.Say != nil && time.Since(r.said) >= 10*time.Second {
			r.said = time.Now()
			r.Say("%d resources were read, %d more are known", len(seen)-len(queue), len(queue))
		}
	}
	return nil
}

// leaveOut writes an empty collection in the place of one that is not read, so that the link to it
// leads somewhere. What is within one that is skipped has no place.
func (r *recorder) leaveOut(at string) error {
	name := path.Base(at)
	kind, known := map[string]string{"Entries": "LogEntry", "JsonSchemas": "JsonSchemaFile"}[name]
	if !known {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{
		"@odata.id": at, "@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": name, "Members": []any{}, "Members@odata.count": 0,
	}, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(r.dir, filepath.FromSlash(at)), "index.json", data)
}

// skips reports whether a path, or one that it is below, is not to be read.
func (r *recorder) skips(at string) bool {
	for ; len(at) > len(root); at = path.Dir(at) {
		for _, pattern := range r.Skip {
			if ok, _ := path.Match(pattern, at); ok { // the patterns are good ones
				return true
			}
		}
	}
	return false
}

// resource is what a path has: from the directory, or else from the service. It is nil if the
// service refuses it.
func (r *recorder) resource(ctx context.Context, at string) ([]byte, error) {
	dir, name := filepath.Join(r.dir, filepath.FromSlash(at)), "index.json"
	if at == metadata {
		name = "index.xml"
	}
	if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
		return data, nil
	}
	if why, err := os.ReadFile(filepath.Join(dir, refused)); err == nil {
		r.refused = append(r.refused, at+": "+string(why))
		return nil, nil
	}
	data, err := r.get(ctx, at)
	var no *refusal
	switch {
	case errors.As(err, &no) && at != root && no.status != http.StatusUnauthorized:
		r.refused = append(r.refused, at+": "+no.Error())
		return nil, write(dir, refused, []byte(no.Error()))
	case err != nil:
		return nil, err
	}
	return data, write(dir, name, data)
}

// write writes a file that is whole, or not there.
func write(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	part := filepath.Join(dir, name+".part")
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, name))
}

// refusal is an answer that is no resource.
type refusal struct {
	at     string
	status int
	why    string
}

func (e *refusal) Error() string { return e.why }

// get reads a resource, with all pages of a collection as one.
func (r *recorder) get(ctx context.Context, at string) ([]byte, error) {
	if at == metadata {
		return r.fetch(ctx, at)
	}
	var whole map[string]any
	for next, pages := at, 0; next != ""; pages++ {
		if pages == maxPages {
			return nil, &refusal{at, 0, fmt.Sprintf("it has more than %d pages", maxPages)}
		}
		data, err := r.fetch(ctx, next)
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var page map[string]any
		if err := decoder.Decode(&page); err != nil {
			return nil, &refusal{at, 0, "what it answers is no JSON object: " + err.Error()}
		}
		next, _ = page["Members@odata.nextLink"].(string)
		if whole == nil {
			whole = page
			continue
		}
		members, _ := whole["Members"].([]any)
		more, _ := page["Members"].([]any)
		whole["Members"] = append(members, more...)
	}
	delete(whole, "Members@odata.nextLink")
	data, err := json.MarshalIndent(whole, "", "  ")
	return append(data, '\n'), err
}

// fetch reads what is at a path, which may have a query.
func (r *recorder) fetch(ctx context.Context, at string) ([]byte, error) {
	if r.read++; r.read > 1 {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(r.Pause):
		}
	}
	to, err := r.base.Parse(strings.ReplaceAll(at, "$metadata", "%24metadata"))
	if err != nil || to.Host != r.base.Host {
		return nil, &refusal{at, 0, "it is no path of this service"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	if at == root {
		request.URL.Path += "/"
	}
	request.Header.Set("OData-Version", "4.0")
	if r.Username != "" {
		request.SetBasicAuth(r.Username, r.Password)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", at, err)
	case response.StatusCode == http.StatusUnauthorized:
		return nil, &refusal{at, response.StatusCode, fmt.Sprintf("%s answers %s: name the user with --username", at, response.Status)}
	case response.StatusCode != http.StatusOK:
		return nil, &refusal{at, response.StatusCode, response.Status}
	case len(data) > maxBody:
		return nil, &refusal{at, 0, fmt.Sprintf("it has more than %d bytes", maxBody)}
	}
	return data, nil
}

// linksIn are the paths that a resource leads to, in the order of their keys.
func linksIn(data []byte) (all []string) {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return nil // the metadata, or nothing
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			keys := make([]string, 0, len(v))
			for key := range v {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			for _, key := range keys {
				if text, ok := v[key].(string); ok && (key == "@odata.id" || key == "@Redfish.ActionInfo") {
					if at, ok := local(text); ok {
						all = append(all, at)
					}
				}
				walk(v[key])
			}
		}
	}
	walk(v)
	return all
}

// local is the path of a link without its fragment and trailing slash, if it is one of a Redfish
// service.
func local(link string) (string, bool) {
	at, _, _ := strings.Cut(link, "#")
	at = strings.TrimSuffix(at, "/")
	if clean := path.Clean(at); clean != at || at != root && !strings.HasPrefix(at, root+"/") || strings.ContainsAny(at, "?\x00\\") {
		return "", false
	}
	return at, true
}
