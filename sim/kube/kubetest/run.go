package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Transcript is what a client observed of one sequence: a line per answer,
// then the watch events of each kind, then what is left.
type Transcript []string

func (t Transcript) String() string { return strings.Join(t, "\n") + "\n" }

// An OpError says at which request of a sequence a run stopped.
type OpError struct {
	Index int
	Op    Op
	Err   error
}

func (e *OpError) Error() string { return e.Op.String() + ": " + e.Err.Error() }
func (e *OpError) Unwrap() error { return e.Err }

// A run performs one sequence on one server.
type run struct {
	client client.WithWatch
	prefix string
	// seen holds all versions of the object of a kind and name that were
	// observed, in order.
	seen map[string][]client.Object
	// names of UIDs, revisions and generated names, by first appearance.
	uids, versions, generated map[string]string
	revisions                 []uint64
	lines                     Transcript
}

// Run performs the sequence and returns what could be observed. prefix must be
// a DNS label that no other run on that server has used: objects are told apart
// by it, and left behind. The error is for what is not an answer: a watch that
// can't be started, an expired context, or what stop selects among the errors of
// single requests.
func Run(ctx context.Context, c client.WithWatch, prefix string, sequence []Op, stop func(error) bool) (Transcript, error) {
	r := &run{
		client: c, prefix: prefix, seen: map[string][]client.Object{},
		uids: map[string]string{}, versions: map[string]string{}, generated: map[string]string{},
	}
	used := map[string]bool{}
	for _, op := range sequence {
		used[op.Kind] = true
	}
	watches := map[string]watch.Interface{}
	for _, k := range kinds {
		if !used[k.name] {
			continue
		}
		head := k.list()
		if err := c.List(ctx, head, &client.ListOptions{Namespace: k.in()}); err != nil {
			return nil, fmt.Errorf("list %s before the sequence: %w", k.name, err)
		}
		w, err := c.Watch(ctx, k.list(), &client.ListOptions{
			Namespace: k.in(), Raw: &metav1.ListOptions{ResourceVersion: head.GetResourceVersion()},
		})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", k.name, err)
		}
		defer w.Stop()
		watches[k.name] = w
	}
	for i, op := range sequence {
		if err := r.do(ctx, op); err != nil && stop(err) {
			return r.lines, &OpError{i, op, err}
		}
		if err := ctx.Err(); err != nil {
			return r.lines, &OpError{i, op, err}
		}
	}
	for _, k := range kinds {
		if w := watches[k.name]; w != nil {
			if err := r.watched(ctx, k, w); err != nil {
				return r.lines, err
			}
		}
	}
	return r.lines, nil
}

func (k kind) in() string {
	if k.namespaced {
		return namespace
	}
	return ""
}

func (r *run) logf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// watched reads the watch up to a last object, which it creates for that.
func (r *run) watched(ctx context.Context, k kind, w watch.Interface) error {
	last := r.blank(k, "end")
	if k.valid != nil {
		k.valid(last)
	}
	if err := r.client.Create(ctx, last); err != nil {
		return fmt.Errorf("create the last %s: %w", k.name, err)
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch %s up to its last object: %w", k.name, ctx.Err())
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("watch %s: it ended early", k.name)
			}
			obj, ok := e.Object.(client.Object)
			if !ok {
				return fmt.Errorf("watch %s: got %v", k.name, e)
			}
			if obj.GetName() == last.GetName() {
				return r.left(ctx, k)
			}
			if strings.HasPrefix(obj.GetName(), r.prefix+"-") {
				r.logf("watch %s %s %s", k.name, e.Type, r.show(obj))
			}
		}
	}
}

// left lists what the sequence has left of a kind.
func (r *run) left(ctx context.Context, k kind) error {
	list := k.list()
	if err := r.client.List(ctx, list, client.InNamespace(k.in())); err != nil {
		return fmt.Errorf("list %s after the sequence: %w", k.name, err)
	}
	for _, line := range r.showAll(list) {
		r.logf("left %s %s", k.name, line)
	}
	return nil
}

// showAll writes down the items of a list that belong to this run, in their
// order; those with generated names come last, because that order is random.
func (r *run) showAll(list client.ObjectList) []string {
	var lines, generated []string
	for _, obj := range items(list) {
		switch {
		case !strings.HasPrefix(obj.GetName(), r.prefix+"-"), obj.GetName() == r.prefix+"-end":
		case r.generated[obj.GetName()] != "":
			generated = append(generated, r.mask(r.generated[obj.GetName()]))
		default:
			lines = append(lines, r.show(obj))
		}
	}
	slices.Sort(generated)
	return append(lines, generated...)
}

func items(list client.ObjectList) []client.Object {
	var objs []client.Object
	all, err := meta.ExtractList(list)
	if err != nil {
		panic(err)
	}
	for _, o := range all {
		objs = append(objs, o.(client.Object))
	}
	return objs
}

func (r *run) blank(k kind, name string) client.Object {
	obj := k.object()
	obj.SetNamespace(k.in())
	if base, ok := strings.CutSuffix(name, "*"); ok {
		obj.SetGenerateName(r.prefix + "-" + base)
	} else if name != "" {
		obj.SetName(r.prefix + "-" + name)
	}
	return obj
}

func (o Op) key() string { return o.Kind + "/" + o.Name }

func (r *run) saw(op Op, obj client.Object) {
	seen := r.seen[op.key()]
	if n := len(seen); n > 0 && seen[n-1].GetResourceVersion() == obj.GetResourceVersion() && seen[n-1].GetUID() == obj.GetUID() {
		return
	}
	r.seen[op.key()] = append(seen, obj.DeepCopyObject().(client.Object))
}

// base returns the object that the request starts from.
func (r *run) base(ctx context.Context, k kind, op Op) client.Object {
	blank := r.blank(k, op.Name)
	seen := r.seen[op.key()]
	pick := func(i int) client.Object {
		if i < 0 || i >= len(seen) {
			return blank
		}
		return seen[i].DeepCopyObject().(client.Object)
	}
	switch op.Base {
	case "blank":
		return blank
	case "first":
		return pick(0)
	case "previous":
		return pick(len(seen) - 2)
	}
	if op.Verb == "create" {
		if k.valid != nil {
			k.valid(blank)
		}
		return blank
	}
	current := k.object()
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(blank), current); err != nil {
		return pick(len(seen) - 1)
	}
	r.saw(op, current)
	return current
}

func (r *run) do(ctx context.Context, op Op) error {
	k := kindNamed(op.Kind)
	obj := r.base(ctx, k, op)
	from := obj.DeepCopyObject().(client.Object)
	for _, e := range op.Edit {
		edit(obj, e)
	}
	switch op.Version {
	case "none":
		obj.SetResourceVersion("")
	case "wrong":
		obj.SetResourceVersion("1")
	}
	switch op.UID {
	case "none":
		obj.SetUID("")
	case "wrong":
		obj.SetUID("00000000-0000-0000-0000-0000000000ff")
	}
	var err error
	switch op.Verb {
	case "get":
		err = r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	case "list":
		return r.list(ctx, k, op)
	case "create":
		err = r.client.Create(ctx, obj)
	case "update":
		if op.Status {
			err = r.client.Status().Update(ctx, obj)
		} else {
			err = r.client.Update(ctx, obj)
		}
	case "patch":
		patch := r.patch(op, from)
		if op.Status {
			err = r.client.Status().Patch(ctx, obj, patch)
		} else {
			err = r.client.Patch(ctx, obj, patch)
		}
	case "delete":
		err = r.client.Delete(ctx, obj, r.deleteOptions(op)...)
	default:
		panic(fmt.Sprintf("kubetest: unknown verb %q", op.Verb))
	}
	switch {
	case err != nil:
		r.logf("%s -> %s", op, r.showError(err))
	case op.Verb == "delete":
		r.logf("%s -> ok", op)
	default:
		if suffix, ok := strings.CutPrefix(obj.GetName(), obj.GetGenerateName()); ok && obj.GetGenerateName() != "" {
			r.generate(obj.GetName(), suffix)
		}
		r.saw(op, obj)
		r.logf("%s -> %s", op, r.show(obj))
	}
	return err
}

// nameSuffix is what the server appends to generateName: no vowels, no digits
// that look like letters.
var nameSuffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)

func (r *run) generate(name, suffix string) {
	if _, known := r.generated[name]; !known && nameSuffix.MatchString(suffix) {
		r.generated[name] = fmt.Sprintf("%s<suffix %d>", strings.TrimSuffix(name, suffix), len(r.generated)+1)
	}
}

func (r *run) list(ctx context.Context, k kind, op Op) error {
	list := k.list()
	opts := []client.ListOption{client.InNamespace(k.in())}
	for _, e := range op.Edit {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "label":
			opts = append(opts, client.MatchingLabels{"l": value})
		case "name":
			opts = append(opts, client.MatchingFields{"metadata.name": r.prefix + "-" + value})
		case "node":
			opts = append(opts, client.MatchingFields{"spec.nodeName": value})
		}
	}
	if err := r.client.List(ctx, list, opts...); err != nil {
		r.logf("%s -> %s", op, r.showError(err))
		return err
	}
	r.logf("%s ->", op)
	for _, line := range r.showAll(list) {
		r.logf("  %s", line)
	}
	return nil
}

func (r *run) patch(op Op, from client.Object) client.Patch {
	switch op.Patch {
	case "merge":
		return client.MergeFrom(from)
	case "lock":
		if from.GetResourceVersion() == "" {
			from.SetResourceVersion("1")
		}
		return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	case "strategic":
		return client.StrategicMergeFrom(from)
	}
	t, text := types.MergePatchType, op.Patch
	if s, ok := strings.CutPrefix(text, "strategic:"); ok {
		t, text = types.StrategicMergePatchType, s
	}
	old := "1"
	if seen := r.seen[op.key()]; len(seen) > 1 {
		old = seen[len(seen)-2].GetResourceVersion()
	}
	text = strings.NewReplacer("OLDRV", strconv.Quote(old), "RV", strconv.Quote(from.GetResourceVersion()), "UID", strconv.Quote(string(from.GetUID()))).Replace(text)
	return client.RawPatch(t, []byte(text))
}

func (r *run) deleteOptions(op Op) []client.DeleteOption {
	var opts []client.DeleteOption
	if op.Grace != "" {
		seconds, err := strconv.ParseInt(op.Grace, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("kubetest: %s: %v", op, err))
		}
		opts = append(opts, client.GracePeriodSeconds(seconds))
	}
	seen := r.seen[op.key()]
	last := func(back int) (uid types.UID, version string) {
		if i := len(seen) - 1 - back; i >= 0 {
			return seen[i].GetUID(), seen[i].GetResourceVersion()
		}
		return "00000000-0000-0000-0000-0000000000fe", "1"
	}
	var p metav1.Preconditions
	for _, cond := range op.If {
		uid, version := last(0)
		switch cond {
		case "uid":
			p.UID = &uid
		case "wrong-uid":
			wrong := types.UID("00000000-0000-0000-0000-0000000000ff")
			p.UID = &wrong
		case "rv":
			p.ResourceVersion = &version
		case "old-rv":
			_, old := last(1)
			p.ResourceVersion = &old
		case "background":
			opts = append(opts, client.PropagationPolicy(metav1.DeletePropagationBackground))
		}
	}
	if p != (metav1.Preconditions{}) {
		opts = append(opts, client.Preconditions(p))
	}
	return opts
}

// show writes an object down with everything particular to a server replaced.
func (r *run) show(obj client.Object) string {
	obj = obj.DeepCopyObject().(client.Object)
	obj.SetManagedFields(nil)
	var notes []string
	if uid := string(obj.GetUID()); uid != "" {
		obj.SetUID(types.UID(nameOf(r.uids, uid, "uid")))
	}
	if v := obj.GetResourceVersion(); v != "" {
		if _, known := r.versions[v]; !known {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				notes = append(notes, "resourceVersion isn't a number")
			}
			if len(r.revisions) > 0 && n < slices.Max(r.revisions) {
				notes = append(notes, "a new resourceVersion is lower than an earlier one")
			}
			r.revisions = append(r.revisions, n)
		}
		obj.SetResourceVersion(nameOf(r.versions, v, "rv"))
	}
	if t := obj.GetCreationTimestamp(); !t.IsZero() {
		if t.Nanosecond() != 0 {
			notes = append(notes, "creationTimestamp has nanoseconds")
		}
		notes = append(notes, "created")
		obj.SetCreationTimestamp(metav1.Time{})
	}
	if t := obj.GetDeletionTimestamp(); t != nil {
		notes = append(notes, "deleting")
		obj.SetDeletionTimestamp(nil)
	}
	if name, ok := r.generated[obj.GetName()]; ok {
		obj.SetName(name)
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(obj); err != nil {
		return "can't be encoded: " + err.Error()
	}
	return strings.TrimSpace(r.mask(strings.TrimSpace(text.String())) + " " + strings.Join(notes, ", "))
}

func nameOf(names map[string]string, value, what string) string {
	if _, ok := names[value]; !ok {
		names[value] = fmt.Sprintf("<%s %d>", what, len(names)+1)
	}
	return names[value]
}

// mask replaces what appears inside of texts.
func (r *run) mask(s string) string {
	for _, names := range []map[string]string{r.uids, r.generated} {
		for _, value := range slices.Sorted(maps.Keys(names)) {
			name := names[value]
			s = strings.ReplaceAll(s, value, name)
		}
	}
	return strings.ReplaceAll(s, r.prefix+"-", "")
}

// version matches a resourceVersion in an error message.
var version = regexp.MustCompile(`ResourceVersion in (the precondition|record) \((\d+)\)`)

// showError writes an error down. The text of a validation error isn't
// compared: only that the request is invalid.
func (r *run) showError(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "error: " + r.mask(err.Error())
	}
	s := status.Status()
	text := fmt.Sprintf("%d %s", s.Code, s.Reason)
	if d := s.Details; d != nil && s.Reason != metav1.StatusReasonInvalid {
		text += fmt.Sprintf(" %s/%s %s", d.Group, d.Kind, r.mask(d.Name))
	}
	switch s.Reason {
	case metav1.StatusReasonConflict, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists:
		message := version.ReplaceAllStringFunc(s.Message, func(m string) string {
			parts := version.FindStringSubmatch(m)
			return fmt.Sprintf("ResourceVersion in %s (%s)", parts[1], nameOf(r.versions, parts[2], "rv"))
		})
		text += ": " + r.mask(message)
	}
	return text
}
