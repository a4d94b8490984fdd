package file_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// The descriptions of the schema are the doc comments of the types of a scenario.
func TestDescriptions(t *testing.T) {
	docs := map[string]string{}
	for _, name := range []string{"scenario.go", "operation.go", "operands.go", "link.go", "campaign.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		describe(t, file, docs)
	}
	data, err := json.MarshalIndent(docs, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, '\n')
	if old, err := os.ReadFile("descriptions.json"); *update && (err != nil || !bytes.Equal(old, data)) {
		t.Error("descriptions.json is a new one: run this once more, for the golden schema embeds it")
	}
	golden(t, "descriptions.json", data)
}

// describe adds the doc comments of the fields that a file can have.
func describe(t *testing.T, file *ast.File, docs map[string]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if structure, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				if field.Tag == nil || field.Tag.Value == "`json:\"-\"`" {
					continue
				}
				name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
				doc := strings.Join(strings.Fields(field.Doc.Text()), " ")
				if !strings.HasPrefix(doc, name+" ") {
					t.Errorf("%s.%s: the doc comment must begin with the name: it is the description in the schema", spec.Name.Name, name)
				}
				docs[spec.Name.Name+"."+name] = doc
			}
		}
		return true
	})
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return compileSchemaOf(t, file.Schema, file.SchemaID)
}

func valid(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

func TestSchema(t *testing.T) {
	data, err := file.Schema(vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "schema.json"), data)
	if again, _ := file.Schema(vocabulary()); !bytes.Equal(data, again) {
		t.Error("the schema is another one each time")
	}
	schema := compileSchema(t)
	for _, pattern := range []string{"good/*.yaml", "lint/*.yaml"} {
		for name, data := range corpus(t, pattern) {
			if err := valid(t, schema, data); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The schema refuses every bad file but those whose mistakes are between two
// places of the file, which is more than it can see.
func TestSchemaBad(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "schema-accepts.txt"))
	if err != nil && !*update {
		t.Fatal(err)
	}
	schema := compileSchema(t)
	var accepted []string
	files := corpus(t, "bad/*.yaml")
	for name, data := range files {
		if valid(t, schema, data) == nil {
			accepted = append(accepted, filepath.Base(name))
		}
	}
	slices.Sort(accepted)
	got := strings.Join(accepted, "\n") + "\n"
	if *update {
		golden(t, filepath.Join("testdata", "schema-accepts.txt"), []byte(got))
	} else if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
	if 3*len(accepted) > len(files) {
		t.Errorf("the schema accepts %d of %d bad files", len(accepted), len(files))
	}
}
