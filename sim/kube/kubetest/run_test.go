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

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Transcript records a client's observations of one sequence: a line per answer, then the watch
// events of each kind, then the objects that are left.
type Transcript []string

func (t Transcript) String() string { return strings.Join(t, "\n") + "\n" }

// An OpError names the request at which a run of a sequence stopped.
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
	// uids, versions and generated map UIDs, revisions and generated names to names by order of
	// first appearance.
	uids, versions, generated map[string]string
	revisions                 []uint64
	lines                     Transcript
}

// Run performs the sequence and returns the observations. prefix must be a DNS label not yet used
// on that server: it distinguishes the objects of runs, which are left behind. An error reports
// what is not an answer: a watch that can't be started, an expired context, or an error of a
// single request that stop selects.
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

// watched reads the watch up to a last object, which it creates for this purpose.
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

// left lists the objects of a kind that the sequence has left.
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
		if e == "mine" { // the server's other objects are none of this run's
			obj.SetLabels(map[string]string{"run": r.prefix})
			continue
		}
		if budget, ok := obj.(*policyv1.PodDisruptionBudget); ok && e == "covers" { // those that are "mine"
			budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"run": r.prefix}}
			continue
		}
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
	switch op.Verb {
	case "list":
		return r.list(ctx, k, op)
	case "managers":
		return r.managers(ctx, op, obj)
	}
	obj, from = r.as(op, obj), r.as(Op{As: op.As}, from)
	err := r.request(ctx, k, op, obj, from)
	switch {
	case err != nil:
		r.logf("%s -> %s", op, r.showError(err))
	case op.Verb == "delete" || op.Verb == "deleteall" || op.Verb == "evict" || op.Verb == "bind":
		r.logf("%s -> ok", op)
	default:
		if suffix, ok := strings.CutPrefix(obj.GetName(), obj.GetGenerateName()); ok && obj.GetGenerateName() != "" {
			r.generate(obj.GetName(), suffix)
		}
		if seen := r.asTyped(k, obj); seen != nil && !op.DryRun {
			r.saw(op, seen)
		}
		r.logf("%s -> %s", op, r.show(obj))
	}
	return err
}

// as converts an object to the form that a request uses.
func (r *run) as(op Op, obj client.Object) client.Object {
	if op.As == "" {
		return obj
	}
	gvk, err := apiutil.GVKForObject(obj, r.client.Scheme())
	if err != nil {
		panic(err)
	}
	if op.As == "metadata" {
		partial := &metav1.PartialObjectMetadata{}
		partial.SetName(obj.GetName())
		partial.SetNamespace(obj.GetNamespace())
		partial.SetGroupVersionKind(gvk)
		return partial
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err)
	}
	dynamic := &unstructured.Unstructured{Object: content}
	dynamic.SetGroupVersionKind(gvk)
	for _, e := range op.Edit {
		editDynamic(dynamic, e)
	}
	return dynamic
}

// asTyped reverses as. It returns nil for an object that can't be converted.
func (r *run) asTyped(k kind, obj client.Object) client.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		if _, partial := obj.(*metav1.PartialObjectMetadata); partial {
			return nil
		}
		return obj
	}
	typed := k.object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return nil
	}
	typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return typed
}

// request makes the request of a single object.
func (r *run) request(ctx context.Context, k kind, op Op, obj, from client.Object) error {
	var dry []string
	if op.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	switch op.Verb {
	case "get":
		return r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	case "create":
		return r.client.Create(ctx, obj, &client.CreateOptions{DryRun: dry, FieldManager: op.Manager})
	case "update":
		options := client.UpdateOptions{DryRun: dry, FieldManager: op.Manager}
		if op.Status {
			return r.client.Status().Update(ctx, obj, &client.SubResourceUpdateOptions{UpdateOptions: options})
		}
		return r.client.Update(ctx, obj, &options)
	case "patch", "apply":
		options := client.PatchOptions{DryRun: dry, FieldManager: op.Manager}
		if op.Force {
			options.Force = &op.Force
		}
		patch := r.patch(op, from)
		if op.Status {
			return r.client.Status().Patch(ctx, obj, patch, &client.SubResourcePatchOptions{PatchOptions: options})
		}
		return r.client.Patch(ctx, obj, patch, &options)
	case "delete":
		return r.client.Delete(ctx, obj, append(r.deleteOptions(op), &client.DeleteOptions{DryRun: dry})...)
	case "evict":
		var o client.DeleteOptions
		o.ApplyOptions(r.deleteOptions(op))
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}, DeleteOptions: o.AsDeleteOptions()}
		return r.client.SubResource("eviction").Create(ctx, obj, eviction, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: dry}})
	case "bind":
		var o client.DeleteOptions
		o.ApplyOptions(r.deleteOptions(op))
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), Annotations: map[string]string{"bound": "yes"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "m"},
		}
		if o.Preconditions != nil && o.Preconditions.UID != nil {
			binding.UID = *o.Preconditions.UID
		}
		return r.client.SubResource("binding").Create(ctx, obj, binding)
	case "deleteall":
		opts := []client.DeleteAllOfOption{client.InNamespace(k.in())}
		for _, o := range r.selectors(op) {
			opts = append(opts, o.(client.DeleteAllOfOption))
		}
		return r.client.DeleteAllOf(ctx, obj, opts...)
	}
	panic(fmt.Sprintf("kubetest: unknown verb %q", op.Verb))
}

// A manager reports the managers of fields. A client whose objects don't show them has this
// method.
type manager interface {
	ManagedFields(ctx context.Context, obj client.Object) ([]metav1.ManagedFieldsEntry, error)
}

// managers writes down the managers of fields.
func (r *run) managers(ctx context.Context, op Op, obj client.Object) error {
	err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	entries := obj.GetManagedFields()
	if m, ok := r.client.(manager); ok && err == nil {
		entries, err = m.ManagedFields(ctx, obj)
	}
	if err != nil {
		r.logf("%s -> %s", op, r.showError(err))
		return err
	}
	r.logf("%s ->", op)
	var lines []string
	for _, e := range entries {
		line := strings.TrimSpace(fmt.Sprintf("  %s %s %s %s", e.Manager, e.Operation, e.APIVersion, e.Subresource)) + " " + r.mask(e.FieldsV1.String())
		if e.Time.IsZero() || e.Time.Nanosecond() != 0 {
			line += " of no time"
		}
		lines = append(lines, "  "+line)
	}
	slices.Sort(lines) // they stand in the order of time, which is that of the machine
	r.lines = append(r.lines, lines...)
	return nil
}

// nameSuffix matches the server's suffix for generateName: no vowels, no digits that look like
// letters.
var nameSuffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)

func (r *run) generate(name, suffix string) {
	if _, known := r.generated[name]; !known && nameSuffix.MatchString(suffix) {
		r.generated[name] = fmt.Sprintf("%s<suffix %d>", strings.TrimSuffix(name, suffix), len(r.generated)+1)
	}
}

// selectors are the options of a list, or of a deletion of many.
func (r *run) selectors(op Op) []client.ListOption {
	var opts []client.ListOption
	for _, e := range op.Edit {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "label":
			opts = append(opts, client.MatchingLabels{"l": value})
		case "name":
			opts = append(opts, client.MatchingFields{"metadata.name": r.prefix + "-" + value})
		case "mine":
			opts = append(opts, client.MatchingLabels{"run": r.prefix})
		case "node":
			opts = append(opts, client.MatchingFields{"spec.nodeName": value})
		case "field":
			field, value, _ := strings.Cut(value, ":")
			selector := fields.OneTermEqualSelector(field, value)
			if not, ok := strings.CutPrefix(value, "!"); ok {
				selector = fields.OneTermNotEqualSelector(field, not)
			}
			opts = append(opts, client.MatchingFieldsSelector{Selector: selector})
		}
	}
	return opts
}

func (r *run) list(ctx context.Context, k kind, op Op) error {
	opts := append(r.selectors(op), client.InNamespace(k.in()))
	limit, tampered := int64(0), ""
	for _, e := range op.Edit {
		switch name, value, _ := strings.Cut(e, "="); name {
		case "limit":
			limit = int64(value[0] - '0')
			opts = append(opts, client.MatchingLabels{"run": r.prefix}) // pages depend on what others have
		case "continue":
			tampered = value
		}
	}
	var next string
	for page := 1; ; page++ {
		list := r.listOf(k, op)
		options := append(slices.Clone(opts), client.Limit(limit), client.Continue(next+tampered))
		if err := r.client.List(ctx, list, options...); err != nil {
			r.logf("%s -> %s", op, r.showError(err))
			return err
		}
		if page == 1 {
			r.logf("%s ->", op)
		}
		lines := r.showAll(list)
		if limit > 0 && len(lines) > 0 { // an empty last page depends on what others have
			r.logf(" page %d", page)
		}
		for _, line := range lines {
			r.logf("  %s", line)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// listOf returns an empty list of the form that the request uses.
func (r *run) listOf(k kind, op Op) client.ObjectList {
	if op.As == "" {
		return k.list()
	}
	gvk, err := apiutil.GVKForObject(k.object(), r.client.Scheme())
	if err != nil {
		panic(err)
	}
	gvk.Kind += "List"
	if op.As == "metadata" {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	return list
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
	} else if s, ok := strings.CutPrefix(text, "json:"); ok {
		t, text = types.JSONPatchType, s
	} else if op.Verb == "apply" {
		return client.RawPatch(types.ApplyYAMLPatchType, r.configuration(op, from))
	}
	old := "1"
	if seen := r.seen[op.key()]; len(seen) > 1 {
		old = seen[len(seen)-2].GetResourceVersion()
	}
	text = strings.NewReplacer("OLDRV", strconv.Quote(old), "RV", strconv.Quote(from.GetResourceVersion()), "UID", strconv.Quote(string(from.GetUID()))).Replace(text)
	return client.RawPatch(t, []byte(text))
}

// configuration completes the configuration that an apply sends.
func (r *run) configuration(op Op, obj client.Object) []byte {
	gvk, err := apiutil.GVKForObject(obj, r.client.Scheme())
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{}
	text := strings.NewReplacer("RV", strconv.Quote(obj.GetResourceVersion()), "UID", strconv.Quote(string(obj.GetUID()))).Replace(op.Patch)
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		panic(fmt.Sprintf("kubetest: %s: %v", op, err))
	}
	u.SetGroupVersionKind(gvk)
	u.SetName(obj.GetName())
	u.SetNamespace(obj.GetNamespace())
	data, err := json.Marshal(u)
	if err != nil {
		panic(err)
	}
	return data
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
	notes = append(notes, untime(obj)...)
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

// untime removes the times that the server itself wrote into an object.
func untime(obj client.Object) (notes []string) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		for i := range obj.Status.Conditions {
			c, set := &obj.Status.Conditions[i], map[corev1.PodConditionType]string{corev1.DisruptionTarget: "disrupted", corev1.PodScheduled: "scheduled"}
			if note := set[c.Type]; note != "" && !c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.Time{}
				notes = append(notes, note)
			}
		}
	case *policyv1.PodDisruptionBudget:
		for i := range obj.Status.Conditions {
			if c := &obj.Status.Conditions[i]; !c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = metav1.Time{}
				notes = append(notes, "changed")
			}
		}
		for pod, at := range obj.Status.DisruptedPods { // order does not matter: each is replaced
			if !at.IsZero() {
				obj.Status.DisruptedPods[pod] = metav1.Time{}
			}
		}
	}
	return notes
}

func nameOf(names map[string]string, value, what string) string {
	if _, ok := names[value]; !ok {
		names[value] = fmt.Sprintf("<%s %d>", what, len(names)+1)
	}
	return names[value]
}

// mask replaces names and values inside texts.
func (r *run) mask(s string) string {
	for _, names := range []map[string]string{r.uids, r.generated} {
		for _, value := range slices.Sorted(maps.Keys(names)) {
			name := names[value]
			s = strings.ReplaceAll(s, value, name)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, r.prefix+"-", ""), `"`+r.prefix+`"`, `"<run>"`)
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
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				text += fmt.Sprintf(" (%s, after %d s)", r.mask(cause.Message), s.Details.RetryAfterSeconds)
			}
		}
	}
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
