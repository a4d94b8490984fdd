package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/lab/machine"
)

// establishTimeout bounds the wait for a CRD to be served, usually some 100 ms.
const establishTimeout = 30 * time.Second

// manifest is an object and where it was read.
type manifest struct {
	*unstructured.Unstructured
	source string // "crds/hosts.yaml, document 2"
}

func (m manifest) String() string {
	return fmt.Sprintf("%s %s (%s)", m.GetKind(), client.ObjectKeyFromObject(m), m.source)
}

// Install applies every object of the *.yaml files (of any number of documents each) in the tree of
// files: CRDs first, then, once these are established, namespaces, then all others in the order of
// their paths. Installing again updates. An object that says nothing of its namespace is in
// default, if it has one. A tree without any object is an error.
func (c *Cluster) Install(ctx context.Context, files fs.FS) error {
	manifests, err := readManifests(files)
	if err != nil {
		return fmt.Errorf("install manifests: %w", err)
	}
	return install(ctx, c.Config(), manifests)
}

// install applies manifests, which are in order.
func install(ctx context.Context, config *rest.Config, manifests []manifest) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("install manifests: %w", err)
	}
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("install manifests: %w", err)
	}
	definitions := 0
	for definitions < len(manifests) && rank(manifests[definitions]) == 0 {
		definitions++
	}
	if err := apply(ctx, writer, manifests[:definitions]); err != nil {
		return err
	}
	for _, m := range manifests[:definitions] {
		if err := awaitEstablished(ctx, writer, m); err != nil {
			return err
		}
	}
	return apply(ctx, writer, manifests[definitions:])
}

func apply(ctx context.Context, writer client.Client, manifests []manifest) error {
	for _, m := range manifests {
		if m.GetNamespace() == "" {
			namespaced, err := writer.IsObjectNamespaced(m)
			if err != nil {
				return fmt.Errorf("install %v: %w", m, err)
			}
			if namespaced {
				m.SetNamespace(metav1.NamespaceDefault) // as kubectl does
			}
		}
		object := client.ApplyConfigurationFromUnstructured(m.Unstructured)
		if err := writer.Apply(ctx, object, client.FieldOwner("fencelab"), client.ForceOwnership); err != nil {
			return fmt.Errorf("install %v: %w", m, err)
		}
	}
	return nil
}

func awaitEstablished(ctx context.Context, reader client.Reader, m manifest) error {
	ctx, cancel := machine.WithBudget(ctx, establishTimeout)
	defer cancel()
	for {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := reader.Get(ctx, client.ObjectKeyFromObject(m), &crd); err != nil {
			return fmt.Errorf("wait until %v is established: %w", m, err)
		}
		for _, condition := range crd.Status.Conditions {
			switch {
			case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
				return nil
			case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
				return fmt.Errorf("install %v: its names were not accepted: %s", m, condition.Message)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %v is established: %w", m, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func readManifests(files fs.FS) ([]manifest, error) {
	var manifests []manifest
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		read, err := decodeManifests(name, text)
		manifests = append(manifests, read...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(manifests) == 0 {
		return nil, errors.New("no object in any *.yaml file")
	}
	slices.SortStableFunc(manifests, func(a, b manifest) int { return cmp.Compare(rank(a), rank(b)) })
	return manifests, nil
}

func decodeManifests(name string, text []byte) ([]manifest, error) {
	var manifests []manifest
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		source := fmt.Sprintf("%s, document %d", name, number)
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		json, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if string(json) == "null" {
			continue // only comments
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(json); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("%s: apiVersion and metadata.name are needed", source)
		}
		manifests = append(manifests, manifest{object, source})
	}
}

// rank orders what others depend on first.
func rank(m manifest) int {
	switch m.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	default:
		return 2
	}
}
