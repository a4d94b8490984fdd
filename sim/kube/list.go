package kube

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/sim/kube/codec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A page is the result of a live List.
type page struct {
	found    []*record
	revision int64
	// next continues the list. remaining is the number of items left, when the server reports it.
	next      string
	remaining *int64
}

// A selectable is a field that objects of a kind can be selected by.
type selectable struct {
	name string
	of   func(r *record) string
}

// list performs a live List.
func (s *Store) list(k *Kind, o *client.ListOptions) (page, error) {
	if err := s.checkFields(k, o.FieldSelector); err != nil {
		return page{}, err
	}
	p := page{revision: s.revision}
	head := s.tables[k.index]
	if o.Continue != "" {
		start, at, err := s.resume(k, o.Continue)
		if err != nil {
			return page{}, err
		}
		if at != inconsistent {
			head, p.revision = s.asOf(k, at), at
		}
		from, there := head.find(start)
		if there {
			from++
		}
		head = head[from:]
	}
	for i, r := range head {
		if o.Namespace != "" && r.key.Namespace != o.Namespace {
			continue
		}
		if o.Limit > 0 && int64(len(p.found)) == o.Limit {
			// there is more to look at, whether or not any of it is selected
			p.next = continueAt(head[i-1].key, p.revision)
			if o.LabelSelector == nil && o.FieldSelector == nil {
				p.remaining = count(head[i:], o.Namespace)
			}
			break
		}
		if selected(r, o) && (o.FieldSelector == nil || o.FieldSelector.Matches(k.fieldsOf(r, o.FieldSelector))) {
			p.found = append(p.found, r)
		}
	}
	return p, nil
}

func count(t table, namespace string) *int64 {
	n := int64(0)
	for _, r := range t {
		if namespace == "" || r.key.Namespace == namespace {
			n++
		}
	}
	return &n
}

// asOf returns the table of a kind as it was at a revision.
func (s *Store) asOf(k *Kind, revision int64) table {
	var then table
	for _, c := range s.logs[k.index] {
		switch {
		case c.Revision > revision:
			return then
		case c.New == nil:
			then.drop(c.Key)
		default:
			then.put(c.record)
		}
	}
	return then
}

// A continuation is the content of the token that continues a list. The real server's looks
// similar, but clients must not depend on it.
type continuation struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

const (
	continuationVersion = "meta.k8s.io/v1"
	// inconsistent is the revision of a continuation that lists the current objects.
	inconsistent = -1
	// compaction is how long the server keeps old revisions: every five minutes it compacts those
	// that were already five minutes old.
	compaction = 5 * time.Minute
)

func continueAt(last client.ObjectKey, revision int64) string {
	data, err := json.Marshal(continuation{continuationVersion, revision, last.Namespace + "/" + last.Name})
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// resume reads the token of a List that continues another.
func (s *Store) resume(k *Kind, token string) (start client.ObjectKey, at int64, err error) {
	var c continuation
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	namespace, name, ok := strings.Cut(c.Start, "/")
	switch {
	case err != nil:
		return start, 0, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
	case c.Version != continuationVersion || !ok || c.Revision == 0 || c.Revision > s.revision:
		return start, 0, apierrors.NewBadRequest("continue key is not valid")
	}
	start = client.ObjectKey{Namespace: namespace, Name: name}
	if c.Revision != inconsistent && s.compacted(c.Revision) {
		err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
		err.ErrStatus.Continue = continueAt(start, inconsistent)
		return start, 0, err
	}
	return start, c.Revision, nil
}

// compacted reports whether the server has forgotten the state of a revision: the
// change that ended it is older than what the server keeps.
func (s *Store) compacted(revision int64) bool {
	var ended *Change
	for _, log := range s.logs {
		i, _ := slices.BinarySearchFunc(log, revision+1, func(c Change, n int64) int { return cmp.Compare(c.Revision, n) })
		if i < len(log) && (ended == nil || log[i].Revision < ended.Revision) {
			ended = &log[i]
		}
	}
	return ended != nil && s.now().Sub(ended.At) > compaction
}

// builtinFields are the fields, beside name and namespace, by which built-in kinds can be
// selected.
var builtinFields = map[string][]selectable{
	"Node": {{"spec.unschedulable", func(r *record) string { return strconv.FormatBool(r.obj.(*corev1.Node).Spec.Unschedulable) }}},
	"Pod": {
		{"spec.nodeName", func(r *record) string { return r.obj.(*corev1.Pod).Spec.NodeName }},
		{"spec.restartPolicy", func(r *record) string { return string(r.obj.(*corev1.Pod).Spec.RestartPolicy) }},
		{"spec.schedulerName", func(r *record) string { return r.obj.(*corev1.Pod).Spec.SchedulerName }},
		{"spec.serviceAccountName", func(r *record) string { return r.obj.(*corev1.Pod).Spec.ServiceAccountName }},
		{"spec.hostNetwork", func(r *record) string { return strconv.FormatBool(r.obj.(*corev1.Pod).Spec.HostNetwork) }},
		{"status.phase", func(r *record) string { return string(r.obj.(*corev1.Pod).Status.Phase) }},
		{"status.podIP", func(r *record) string { return r.obj.(*corev1.Pod).Status.PodIP }},
		{"status.nominatedNodeName", func(r *record) string { return r.obj.(*corev1.Pod).Status.NominatedNodeName }},
	},
	"Secret": {{"type", func(r *record) string { return string(r.obj.(*corev1.Secret).Type) }}},
	"Event": {
		{"involvedObject.kind", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.Kind })},
		{"involvedObject.namespace", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.Namespace })},
		{"involvedObject.name", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.Name })},
		{"involvedObject.uid", ofEvent(func(e *corev1.Event) string { return string(e.InvolvedObject.UID) })},
		{"involvedObject.apiVersion", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.APIVersion })},
		{"involvedObject.resourceVersion", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion })},
		{"involvedObject.fieldPath", ofEvent(func(e *corev1.Event) string { return e.InvolvedObject.FieldPath })},
		{"reason", ofEvent(func(e *corev1.Event) string { return e.Reason })},
		{"reportingComponent", ofEvent(func(e *corev1.Event) string { return e.ReportingController })},
		{"source", ofEvent(func(e *corev1.Event) string {
			if e.Source.Component == "" {
				return e.ReportingController
			}
			return e.Source.Component
		})},
		{"type", ofEvent(func(e *corev1.Event) string { return e.Type })},
	},
}

func ofEvent(field func(*corev1.Event) string) func(*record) string {
	return func(r *record) string { return field(r.obj.(*corev1.Event)) }
}

// selectBy makes fields of a custom resource selectable. They are strings, integers
// or booleans.
func (k *Kind) selectBy(names []string) error {
	for _, name := range names {
		type hop struct {
			field codec.Member
			// through says that the field is a pointer to the next structure
			through bool
		}
		var hops []hop
		p := k.plan
		for _, part := range strings.Split(name, ".") {
			i := slices.IndexFunc(p.Fields, func(f codec.Member) bool { return f.Name == part })
			if i < 0 {
				return fmt.Errorf("select by %s: %v has no field %s", name, p.Typ, part)
			}
			f := p.Fields[i]
			p = f.Plan
			through := p.Shape == codec.Pointer
			if through {
				p = p.Elem
			}
			hops = append(hops, hop{f, through})
		}
		k.selectable = append(k.selectable, selectable{name, func(r *record) string {
			at := reflect.ValueOf(r.obj).Elem()
			for _, h := range hops {
				at = h.field.At(at.Addr().UnsafePointer())
				if h.through {
					if at.IsNil() {
						return ""
					}
					at = at.Elem()
				}
			}
			if at.Kind() != reflect.String && slices.Contains(r.sparse, "-"+name) {
				return ""
			}
			return fmt.Sprint(at.Interface())
		}})
	}
	return nil
}

// fieldOf returns the value of a field that objects can be selected by.
func (k *Kind) fieldOf(r *record, name string) (string, bool) {
	switch {
	case name == "metadata.name":
		return r.key.Name, true
	case name == "metadata.namespace" && k.Namespaced:
		return r.key.Namespace, true
	}
	i := slices.IndexFunc(k.selectable, func(f selectable) bool { return f.name == name })
	if i < 0 {
		return "", false
	}
	return k.selectable[i].of(r), true
}

// fieldsOf returns the fields that a selector needs.
func (k *Kind) fieldsOf(r *record, sel fields.Selector) fields.Set {
	set := fields.Set{}
	for _, requirement := range sel.Requirements() {
		set[requirement.Field], _ = k.fieldOf(r, requirement.Field)
	}
	return set
}

// checkFields refuses selectors with fields that the kind can't be selected by.
func (s *Store) checkFields(k *Kind, sel fields.Selector) error {
	if sel == nil {
		return nil
	}
	blank := &record{obj: k.base.New()}
	for _, r := range sel.Requirements() {
		if _, ok := k.fieldOf(blank, r.Field); !ok {
			return apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return nil
}
