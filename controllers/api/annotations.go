package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// RebootAnnotation asks for one power cycle of a BareMetalHost (seeds 000,
	// 001). With "/key" appended it also holds the host off until its
	// originator removes it.
	RebootAnnotation = "reboot.metal3.io"
	// RemediationRebootAnnotation is the keyed form that the machine
	// remediation controller owns (seed 002).
	RemediationRebootAnnotation = RebootAnnotation + "/" + RemediationRebootKey
	RemediationRebootKey        = "machine-remediation"
	// DeletionRebootAnnotation is the keyed form that the deletion controller owns: it holds
	// the host of a Machine being deleted off until its Node is gone.
	DeletionRebootAnnotation = RebootAnnotation + "/" + DeletionRebootKey
	DeletionRebootKey        = "machine-deletion"
	// DetachedAnnotation on a BareMetalHost takes the host from whoever manages it, as upstream's
	// does, until it is adopted: the annotation is removed.
	DetachedAnnotation = "baremetalhost.metal3.io/detached"
	// ExternalRemediationAnnotation marks a Machine as unhealthy: a controller outside of Cluster
	// API has to remediate it (seeds 002, 004).
	ExternalRemediationAnnotation = "host.metal3.io/external-remediation"
	// MarkedBootAnnotation on a Machine stamps its mark with the boot that the mark is about: one
	// that the Node reported while the mark stood. A mark has no identity of its own, and a
	// fencing of an earlier boot must not be taken for the answer to it (design, decision 22). The
	// agents of seed 004 set the stamp. Whoever sets a mark removes the stamp of the previous one.
	MarkedBootAnnotation = "poison-pill.fencelab.dev/boot"
	// HostAnnotation on a Machine names its BareMetalHost as namespace/name
	// (seed 002).
	HostAnnotation = "metal3.io/BareMetalHost"
	// PoweredOffForRemediationAnnotation on a Machine records that its Node was deleted while the
	// host was off, or, where the Node stays, which of its boots ended. Only used with the
	// remediation controller's options that keep the mark until the Node is back (design, decision
	// 6). Whoever sets a mark removes the record of the previous one.
	PoweredOffForRemediationAnnotation = "remediation.metal3.io/powered-off-for-remediation"

	// NodeBackupAnnotation on a Machine has what its Node was before the remediation controller
	// deleted it, which makes it anew.
	NodeBackupAnnotation = "remediation.metal3.io/node-backup"
	// NodeUIDAnnotation on a Pod is the UID of the Node that it was bound to. A
	// Pod of another incarnation of that Node is an orphan: kubelets don't run
	// it and the workload controller deletes it.
	NodeUIDAnnotation = "fencelab.dev/node-uid"
	// StopsAnnotation on a Pod is how long its processes take to stop on request. With never, they
	// end only when they are killed after the Pod's grace period. Kubelets of the simulator, of
	// models and of small guests obey it.
	StopsAnnotation = "fencelab.dev/stops"
)

// RebootMode is the manner in which a host is taken down.
type RebootMode string

// The modes of seed 000. Soft is the default, and falls back to hard.
const (
	RebootSoft RebootMode = "soft"
	RebootHard RebootMode = "hard"
)

// RebootRequest is one reboot annotation, parsed.
type RebootRequest struct {
	// Annotation is the whole key.
	Annotation string
	// Key is the part after the slash; empty for the plain form.
	Key  string
	Mode RebootMode
	// ID distinguishes this content from any other: see RequestID.
	ID string
	// Problem says why the value could not be parsed, so that soft was assumed; empty otherwise.
	Problem string
}

// RequestID is a short name for the content of a reboot annotation. By seed 000, the
// content is ignored but preserved, and it may be long, so the status answers a
// request by this name. A client whose requests all differ in content is never given
// the answer to another request.
func RequestID(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}

// RebootRequests finds the reboot annotations among annotations, the plain form
// first and the keyed ones in order of their keys.
func RebootRequests(annotations map[string]string) []RebootRequest {
	var requests []RebootRequest
	for annotation, value := range annotations { // order does not matter: sorted below
		key, ok := rebootKey(annotation)
		if !ok {
			continue
		}
		r := RebootRequest{Annotation: annotation, Key: key, ID: RequestID(value)}
		var err error
		if r.Mode, err = ParseRebootMode(value); err != nil {
			r.Problem = fmt.Sprintf("annotation %s has the value %q: %v; a soft reboot is assumed", annotation, Shorten(value), err)
		}
		requests = append(requests, r)
	}
	slices.SortFunc(requests, func(a, b RebootRequest) int { return strings.Compare(a.Annotation, b.Annotation) })
	return requests
}

// IsRebootAnnotation reports whether an annotation's key is the plain or a keyed
// reboot annotation. A slash with nothing behind it is neither.
func IsRebootAnnotation(annotation string) bool {
	_, ok := rebootKey(annotation)
	return ok
}

func rebootKey(annotation string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(annotation, RebootAnnotation)
	if !ok || rest == "" {
		return "", ok
	}
	key, ok = strings.CutPrefix(rest, "/")
	return key, ok && key != ""
}

// ParseRebootMode reads the value of a reboot annotation: a map with the key "mode". It is parsed
// as a YAML flow mapping, of which JSON is a subset, because the documented example
// {'mode':'hard'} is not JSON and would silently mean soft (design, decision 1). An empty value is
// soft. Other keys are left to their writers. On an error the mode is soft.
func ParseRebootMode(value string) (RebootMode, error) {
	if strings.TrimSpace(value) == "" {
		return RebootSoft, nil
	}
	var content struct {
		Mode *string `json:"mode" yaml:"mode"`
	}
	if json.Unmarshal([]byte(value), &content) != nil {
		content.Mode = nil
		if err := unmarshalYAML([]byte(value), &content); err != nil {
			return RebootSoft, fmt.Errorf(`it is not a map such as {"mode":"hard"}`)
		}
	}
	if content.Mode == nil {
		return RebootSoft, nil
	}
	switch mode := RebootMode(*content.Mode); mode {
	case RebootSoft, RebootHard:
		return mode, nil
	default:
		return RebootSoft, fmt.Errorf(`the mode %q is neither "hard" nor "soft"`, Shorten(string(mode)))
	}
}

// unmarshalYAML turns a panic of the parser, which fuzzing has provoked in
// several YAML libraries, into an error: the value comes from any user.
func unmarshalYAML(data []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse YAML: %v", p)
		}
	}()
	return yaml.Unmarshal(data, into)
}
