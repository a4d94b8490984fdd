package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	"github.com/fencelab/fencelab/controllers/api"
)

var testServer = func() *Server {
	server, err := NewServer(api.NewScheme(), []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Event"),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	}, []CustomResource{
		{GroupVersionKind: api.GroupVersion.WithKind("BareMetalHost"), Plural: "baremetalhosts", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Machine"), Plural: "machines", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck"), Plural: "machinehealthchecks", Status: true},
	})
	if err != nil {
		panic(err)
	}
	return server
}()

// filler makes random objects: empty and absent collections, times with
// nanoseconds and in other zones, quantities in several spellings.
func filler(seed int64) *randfill.Filler {
	quantities := []string{"0", "1", "1000m", "1Gi", "1024Mi", "1e3"}
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 2).Funcs(
		func(t *metav1.Time, c randfill.Continue) {
			if c.Bool() {
				t.Time = time.Unix(int64(c.Intn(1e9))+1, int64(c.Intn(1e9))).In(time.FixedZone("", 3600))
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			if c.Bool() {
				t.Time = time.Unix(int64(c.Intn(1e9))+1, int64(c.Intn(1e9))).In(time.FixedZone("", 3600))
			}
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(quantities[c.Intn(len(quantities))])
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(int32(c.Intn(100))) },
		func(v *runtime.RawExtension, c randfill.Continue) {},
		func(v *metav1.FieldsV1, c randfill.Continue) { v.SetRawString("{}") },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.ManagedFields = nil
			m.SetSelfLink("")
		},
		func(s *string, c randfill.Continue) {
			if c.Bool() {
				*s = fmt.Sprintf("s<%d>&", c.Intn(1000))
			}
		},
	)
}

func random(k *Kind, seed int64) client.Object {
	obj := k.New()
	filler(seed).Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj
}

// stored returns obj as it comes back from a server, through its encodings.
func stored(t *testing.T, k *Kind, obj client.Object) client.Object {
	t.Helper()
	if k.Custom {
		return throughJSON(t, k, obj)
	}
	back := k.New()
	data, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := back.(interface{ Unmarshal([]byte) error }).Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return back
}

func throughJSON(t *testing.T, k *Kind, obj client.Object) client.Object {
	t.Helper()
	back := k.New()
	data, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(data, back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func eachKind(t *testing.T, n int64, test func(t *testing.T, k *Kind, seed int64)) {
	for _, k := range testServer.kinds {
		t.Run(k.Kind, func(t *testing.T) {
			for seed := range n {
				test(t, k, seed)
				if t.Failed() {
					t.Fatalf("with seed %d", seed)
				}
			}
		})
	}
}

func TestNormaliseDoesWhatEncodingDoes(t *testing.T) {
	eachKind(t, 200, func(t *testing.T, k *Kind, seed int64) {
		obj := random(k, seed)
		want := stored(t, k, obj)
		k.normalise(want) // the decoder answers in the local zone
		got := obj.DeepCopyObject().(client.Object)
		k.normalise(got)
		if !k.same(got, want) || !equality.Semantic.DeepEqual(got, want) {
			a, _ := json.MarshalIndent(got, "", " ")
			b, _ := json.MarshalIndent(want, "", " ")
			t.Errorf("normalised:\n%s\nencoded and decoded:\n%s", a, b)
		}
		again := got.DeepCopyObject().(client.Object)
		k.normalise(again)
		if !reflect.DeepEqual(got, again) {
			t.Error("normalising twice is not the same as once")
		}
	})
}

func TestEqualSeesEveryLeaf(t *testing.T) {
	eachKind(t, 300, func(t *testing.T, k *Kind, seed int64) {
		a := random(k, seed)
		k.normalise(a)
		b := a.DeepCopyObject().(client.Object)
		if !k.same(a, b) {
			t.Fatal("a copy differs")
		}
		if path := changeOneLeaf(rand.New(rand.NewSource(seed)), reflect.ValueOf(b).Elem(), k.Kind); path != "" && k.same(a, b) {
			t.Errorf("a change of %s was not seen", path)
		}
	})
}

// changeOneLeaf changes a random string, number or bool below v and returns its
// path, or "" when it found none.
func changeOneLeaf(r *rand.Rand, v reflect.Value, path string) string {
	switch v.Type() {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		at := v.Field(0).Addr().Interface().(*time.Time)
		*at = at.Add(time.Hour)
		return path
	case reflect.TypeFor[resource.Quantity]():
		q := v.Addr().Interface().(*resource.Quantity)
		q.Add(resource.MustParse("7"))
		return path
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
		return path
	case reflect.Bool:
		v.SetBool(!v.Bool())
		return path
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() ^ 1)
		return path
	case reflect.Pointer:
		if !v.IsNil() {
			return changeOneLeaf(r, v.Elem(), path)
		}
	case reflect.Struct:
		for _, i := range r.Perm(v.NumField()) {
			if f := v.Field(i); f.CanSet() {
				if p := changeOneLeaf(r, f, path+"."+v.Type().Field(i).Name); p != "" {
					return p
				}
			}
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			return changeOneLeaf(r, v.Index(r.Intn(v.Len())), path+"[]")
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(it.Value())
			if p := changeOneLeaf(r, value, path+"[]"); p != "" {
				v.SetMapIndex(it.Key(), value)
				return p
			}
		}
	}
	return ""
}

// TestDifferenceIsMergeFrom holds the typed difference against the patch that
// controller-runtime makes, which also pins the private fields that it reads.
func TestDifferenceIsMergeFrom(t *testing.T) {
	eachKind(t, 200, func(t *testing.T, k *Kind, seed int64) {
		from := random(k, seed)
		var to client.Object
		if seed%2 == 0 {
			to = random(k, seed+1000)
		} else {
			to = from.DeepCopyObject().(client.Object)
			changeOneLeaf(rand.New(rand.NewSource(seed)), reflect.ValueOf(to).Elem(), "")
		}
		for _, locked := range []bool{false, true} {
			patch := client.MergeFrom(from)
			if locked {
				from.SetResourceVersion("7")
				patch = client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
			}
			want, err := patch.Data(to)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.data(patch, to)
			if err != nil {
				t.Fatal(err)
			}
			if !equalJSON(t, got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	})
}

func equalJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	for _, d := range []struct {
		data []byte
		into *any
	}{{a, &x}, {b, &y}} {
		dec := json.NewDecoder(bytes.NewReader(d.data))
		if err := dec.Decode(d.into); err != nil {
			t.Fatalf("%v: %s", err, d.data)
		}
	}
	return reflect.DeepEqual(x, y)
}

// TestMergeGivesTheTarget applies the patch from one object to another and
// expects the other.
func TestMergeGivesTheTarget(t *testing.T) {
	eachKind(t, 200, func(t *testing.T, k *Kind, seed int64) {
		from, to := random(k, seed), random(k, seed+1000)
		for _, obj := range []client.Object{from, to} {
			k.normalise(obj)
			obj.SetName("a")
			obj.SetNamespace("b")
			obj.SetFinalizers(nil)
		}
		to = throughJSON(t, k, to) // a patch is JSON whatever the kind's storage
		k.normalise(to)
		patch, err := client.MergeFrom(from).Data(to)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := json.Marshal(from)
		m := merge{custom: k.Custom, sparse: map[string]bool{}}
		members, err := members(patch)
		if err != nil {
			t.Fatal(err)
		}
		got := k.shallow(from)
		if err := m.structure(k.plan, reflect.ValueOf(got).UnsafePointer(), members, "", false); err != nil {
			if _, ok := err.(*notEquivalent); ok {
				return
			}
			t.Fatal(err)
		}
		k.normalise(got)
		if after, _ := json.Marshal(from); !bytes.Equal(before, after) {
			t.Error("the patch changed the stored object")
		}
		if m.invalid != nil {
			return // a required field is null in the target
		}
		if !k.same(got, to) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(to)
			t.Errorf("patch %s\ngave %s\nwant %s", patch, a, b)
		}
	})
}
