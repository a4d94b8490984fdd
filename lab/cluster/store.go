package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/lab/machine"
)

// versions holds the versions of all keys of a store.
type versions map[string]int64

// itself are keys that the API server writes about itself, whenever it likes.
var itself = []string{
	"/registry/leases/kube-system/apiserver-",
	"/registry/peerserverleases/",
	"/registry/configmaps/kube-system/extension-apiserver-authentication", // whom it believes
}

// forgotten are kinds, with custom resources, of whose objects the API server keeps nothing once
// they are gone from the store, but for caches that follow it. A Service has an address, a
// Namespace is remembered as one that was deleted, a definition is served: they are not among them.
var forgotten = []string{
	"configmaps", "controllerrevisions", "events", "leases", "minions", "persistentvolumeclaims", "persistentvolumes", "pods", "secrets", "serviceaccounts",
	"statefulsets", "clusterroles", "clusterrolebindings", "roles", "rolebindings",
}

// settling bounds the wait until a new control plane writes nothing any more of its own accord.
const settling, settleInterval = 5 * time.Second, 100 * time.Millisecond

// settled returns the versions of a control plane that is new, once they don't change; nil if they
// go on doing so.
func (c *Cluster) settled(ctx context.Context) (versions, error) {
	ctx, cancel := machine.WithBudget(ctx, settling)
	defer cancel()
	before, err := c.versions(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(settleInterval):
		}
		var now versions
		if now, err = c.versions(ctx); maps.Equal(before, now) {
			return now, err
		}
		before = now
	}
	return nil, err
}

// empty deletes what was made since the control plane was new. It fails where that is not all.
func (c *Cluster) empty(ctx context.Context) error {
	now, err := c.versions(ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, original := c.original[key]; original {
			continue // its version is looked at below
		}
		if !c.forgets(key) {
			return fmt.Errorf("empty it: %s was made, which may have left more than itself", key)
		}
		if err := c.askStore(ctx, "deleterange", map[string]any{"key": []byte(key)}, nil); err != nil {
			return err
		}
	}
	if now, err = c.versions(ctx); err != nil {
		return err
	}
	for _, all := range []versions{c.original, now} {
		for key := range all {
			if now[key] != c.original[key] {
				return fmt.Errorf("empty it: %s is not what it was", key)
			}
		}
	}
	return nil
}

// forgets reports whether nothing remains of the object at a key once it is deleted: it is of a
// kind of its own, or of one that was defined when the control plane was new.
func (c *Cluster) forgets(key string) bool {
	words := strings.Split(key, "/") // nothing, registry, kind or group
	if len(words) < 4 {
		return false
	}
	if slices.Contains(forgotten, words[2]) {
		return true
	}
	_, defined := c.original["/registry/apiextensions.k8s.io/customresourcedefinitions/"+words[3]+"."+words[2]]
	return defined
}

// versions reads those of all keys but those that the API server writes about itself.
func (c *Cluster) versions(ctx context.Context) (versions, error) {
	var answer struct {
		Keys []struct {
			Key     []byte `json:"key"`
			Version int64  `json:"mod_revision,string"`
		} `json:"kvs"`
	}
	all := []byte{0} // as the beginning and as the end
	if err := c.askStore(ctx, "range", map[string]any{"key": all, "range_end": all, "keys_only": true}, &answer); err != nil {
		return nil, err
	}
	found := make(versions, len(answer.Keys))
	for _, k := range answer.Keys {
		if key := string(k.Key); !slices.ContainsFunc(itself, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			found[key] = k.Version
		}
	}
	return found, nil
}

// askStore asks etcd something about its keys, in the JSON that it speaks beside gRPC.
func (c *Cluster) askStore(ctx context.Context, what string, question, answer any) error {
	_, socket, _ := strings.Cut(etcdClients, "://")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.dir, socket))
	}}
	text, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask etcd: %s: %w", what, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+what, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("ask etcd: %s: %w", what, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask etcd: %s: %w", what, err)
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("ask etcd: %s: %w", what, err)
	}
	return nil
}
