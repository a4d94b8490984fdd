package file

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

//go:generate go test -run TestDescriptions . -update

// descriptions are the doc comments of the fields of a scenario, as Type.field:
// the sources are not there when the program runs.
//
//go:embed descriptions.json
var descriptions []byte

// SchemaID names the JSON Schema of scenario files.
const SchemaID = "urn:fencelab:v1alpha1:scenario"

// schemaPart is a JSON Schema, or a keyword's worth of one.
type schemaPart map[string]any

// Schema returns the JSON Schema (draft 2020-12) of scenario files that use a
// vocabulary, for editors. It accepts everything that Load accepts, but for
// unusual spellings of durations; it doesn't know of references from one place
// of a file to another, which only Load checks.
func Schema(vocab Vocabulary) ([]byte, error) {
	return schemaOf(reflect.TypeFor[scenarios.Scenario](), SchemaID, "fencelab scenario", vocab)
}

// CampaignSchemaID names the JSON Schema of campaigns.
const CampaignSchemaID = "urn:fencelab:v1alpha1:campaign"

// CampaignSchema returns the JSON Schema of campaigns, as Schema does that of scenarios.
func CampaignSchema(vocab Vocabulary) ([]byte, error) {
	return schemaOf(reflect.TypeFor[scenarios.Campaign](), CampaignSchemaID, "fencelab campaign", vocab)
}

func schemaOf(t reflect.Type, id, title string, vocab Vocabulary) ([]byte, error) {
	b := schemaBuilder{vocab: vocab, defs: schemaPart{}, docs: map[string]string{}}
	if err := json.Unmarshal(descriptions, &b.docs); err != nil {
		return nil, fmt.Errorf("read the descriptions of the schema: %w", err)
	}
	b.rules = b.constraints()
	root := b.object(t, true)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = id
	root["title"] = title
	root["$defs"] = b.defs
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return append(data, '\n'), nil
}

type schemaBuilder struct {
	vocab Vocabulary
	defs  schemaPart
	docs  map[string]string
	// rules adds constraints that the types don't show, keyed as Type.field. A list's rule applies
	// to its items.
	rules map[string]schemaPart
}

const (
	durationUnits   = `([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h))+`
	durationPattern = `^(0|` + durationUnits + `)$`
	spanPattern     = `^(0|` + durationUnits + `)( *\.\. *` + durationUnits + `)?$`
)

func enum(names []string) schemaPart { return schemaPart{"enum": names} }

func pattern(p string) schemaPart { return schemaPart{"pattern": p} }

// several are the names of the controllers of a kind, and of the processes of one.
func several(name string) (all []string) {
	for n := 1; n <= maxReplicas; n++ {
		all = append(all, history.Process(name, n))
	}
	return all
}

// listed are several of each kind.
func (b *schemaBuilder) listed() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(b.vocab.Controllers)) {
		all = append(all, several(name)...)
	}
	return all
}

func (b *schemaBuilder) constraints() map[string]schemaPart {
	// A program has a name of its own.
	controllers := schemaPart{"anyOf": []schemaPart{enum(b.listed()), pattern(dnsLabelPattern)}}
	rules := map[string]schemaPart{
		"Scenario.apiVersion":        {"const": scenarios.APIVersion},
		"Scenario.kind":              {"const": scenarios.KindScenario},
		"Metadata.name":              pattern(dnsLabelPattern),
		"Parameter.name":             pattern(parameterNamePattern),
		"Parameter.type":             enum(parameterTypes),
		"Workers.count":              {"minimum": 1, "maximum": maxWorkers},
		"Repeat.for":                 pattern(parameterNamePattern),
		"RateLimit.burst":            {"minimum": 1},
		"Repeat.times":               {"minimum": 2, "maximum": maxRounds},
		"Metadata.description":       pattern(`\S`),
		"Metadata.seeds":             enum(seedNumbers),
		"Metadata.labels":            pattern(dnsLabelPattern),
		"Metadata.upstream":          pattern(upstreamPattern),
		"Host.name":                  pattern(dnsLabelPattern),
		"Host.role":                  enum([]string{scenarios.ControlPlane}),
		"FailAPIOp.controller":       controllers,
		"ControllerOp.controller":    controllers,
		"ClockOp.controller":         controllers,
		"Controller.replicas":        {"minimum": 2, "maximum": maxReplicas},
		"FailAPIOp.verb":             enum(scenarios.APIVerbs),
		"FailAPIOp.kind":             enum(b.vocab.Kinds.Names(scenarios.AnyKind)),
		"FailAPIOp.code":             {"enum": scenarios.APICodes},
		"FailAPIOp.times":            {"minimum": 1},
		"Host.nodeName":              pattern(dnsLabelPattern),
		"Host.machineName":           pattern(dnsLabelPattern),
		"Host.domain":                pattern(dnsLabelPattern),
		"PatchOp.object":             pattern(b.vocab.objectPattern(scenarios.IsChanged)),
		"ObjectOp.object":            pattern(b.vocab.objectPattern(scenarios.IsChanged)),
		"CreateOp.object":            pattern(b.vocab.objectPattern(scenarios.IsMade)),
		"Host.labels":                pattern(labelValuePattern),
		"AnnotateOp.labels":          pattern(labelValuePattern),
		"PatchOp.labels":             pattern(labelValuePattern),
		"ObjectOp.labels":            pattern(labelValuePattern),
		"AnnotateOp.kind":            enum(b.vocab.Kinds.Names(scenarios.IsAnnotated)),
		"PatchOp.kind":               enum(b.vocab.Kinds.Names(scenarios.IsChanged)),
		"ObjectOp.kind":              enum(b.vocab.Kinds.Names(scenarios.IsChanged)),
		"HealthCheck.maxUnhealthy":   pattern(maxUnhealthyPattern),
		"HealthCheck.unhealthyRange": pattern(scenarios.NumberRange.String()),
		"Controller.name":            controllers,
		"Trigger.event":              enum(eventKinds()),
		"Trigger.occurrence":         {"minimum": 1},
		"LinkOp.from":                pattern(scenarios.EndPattern),
		"LinkOp.to":                  pattern(scenarios.EndPattern),
		"LinkOp.between":             pattern(scenarios.EndPattern),
		"FaultOp.name":               {"minLength": 1},
		"CrashOp.controller":         controllers,
		"CrashOp.occurrence":         {"minimum": 1},
		"CrashOp.point":              enum(scenarios.CrashPoints),
		"CacheOp.controller":         controllers,
		"AnnotateOp.object":          pattern(b.vocab.objectPattern(scenarios.IsAnnotated)),
		"AnnotateOp.key":             pattern(scenarios.QualifiedName.String()),
		"Spec.invariants":            enum(invariantIDs()),
		"Campaign.apiVersion":        {"const": scenarios.APIVersion},
		"Campaign.kind":              {"const": scenarios.KindCampaign},
		"CampaignMetadata.name":      pattern(dnsLabelPattern),
		"CampaignSearch.schedules":   {"minimum": 1},
		"CampaignSearch.depth":       {"minimum": 1},
		"CampaignSpec.guarantees":    {"minimum": 1, "maximum": 100},
		"Spec.assumes":               enum(scenarios.Premises),
		"Expectation.violated":       enum(invariantIDs()),
	}
	if policies := b.vocab.PowerRestores; policies != nil {
		rules["Host.powerRestore"] = enum(policies)
	}
	if strategies := b.vocab.Strategies; strategies != nil {
		rules["CampaignSearch.strategy"] = enum(slices.Sorted(maps.Keys(strategies)))
	}
	if worlds := b.vocab.worlds(); worlds != nil {
		rules["Spec.worlds"] = enum(worlds)
	}
	if b.vocab.Fault != nil {
		rules["FaultOp.rule"] = b.value(reflect.TypeOf(b.vocab.Fault()).Elem(), false)
	}
	return rules
}

// value is the schema of a type. The types of other packages have no required
// fields, see decodeForeign.
func (b *schemaBuilder) value(t reflect.Type, own bool) schemaPart {
	switch pointer := reflect.PointerTo(t); {
	case t == reflect.TypeFor[scenarios.Span]():
		return schemaPart{"type": "string", "pattern": spanPattern}
	case t == reflect.TypeFor[json.RawMessage]():
		return schemaPart{"type": "object"}
	case pointer.Implements(jsonUnmarshaler) || pointer.Implements(textUnmarshaler):
		return leaf(t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem(), own)
	case reflect.Struct:
		return b.reference(t, own)
	case reflect.Map:
		return schemaPart{"type": "object", "additionalProperties": b.value(t.Elem(), own)}
	case reflect.Slice:
		return schemaPart{"type": "array", "items": b.value(t.Elem(), own)}
	case reflect.String:
		return schemaPart{"type": "string"}
	case reflect.Bool:
		return schemaPart{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return schemaPart{"type": "number"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return schemaPart{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return schemaPart{"type": "integer"}
	default:
		return schemaPart{"type": []string{"string", "number", "boolean"}} // any
	}
}

// leaf is the schema of a type that reads itself: it reads what it writes.
func leaf(t reflect.Type) schemaPart {
	zero, err := json.Marshal(reflect.Zero(t).Interface())
	switch {
	case err == nil && string(zero) == `"0s"`:
		return schemaPart{"type": "string", "pattern": durationPattern}
	case err == nil && strings.HasPrefix(string(zero), `"`):
		return schemaPart{"type": "string"}
	default:
		return schemaPart{}
	}
}

// reference refers to the definition of a struct, and makes it if need be.
func (b *schemaBuilder) reference(t reflect.Type, own bool) schemaPart {
	name := t.Name()
	switch {
	case name == "":
		return b.object(t, own)
	case !own:
		name = t.String() // with its package
	}
	if _, made := b.defs[name]; !made {
		b.defs[name] = schemaPart{} // in case that the type contains itself
		b.defs[name] = b.object(t, own)
	}
	return schemaPart{"$ref": "#/$defs/" + name}
}

func (b *schemaBuilder) object(t reflect.Type, own bool) schemaPart {
	properties, required := schemaPart{}, []string{}
	for _, f := range fieldsOf(t) {
		name := t.Name() + "." + f.name
		property := b.value(f.typ, own)
		if own {
			target := property
			switch f.typ.Kind() {
			case reflect.Slice:
				if items, ok := property["items"].(schemaPart); ok {
					target = items
				}
				if f.optional {
					property["minItems"] = 1
				}
			case reflect.Map:
				if values, ok := property["additionalProperties"].(schemaPart); ok {
					target = values
				}
				if f.optional {
					property["minProperties"] = 1
				}
			}
			maps.Copy(target, b.rules[name])
			if text := b.docs[name]; text != "" {
				property["description"] = text
			}
			if !f.optional {
				required = append(required, f.name)
			}
		}
		properties[f.name] = property
	}
	object := schemaPart{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		object["required"] = required
	}
	switch t {
	case reflect.TypeFor[scenarios.CampaignSpec]():
		for _, list := range []string{"stories", "searches"} {
			properties[list].(schemaPart)["minItems"] = 1
		}
		properties["guarantees"].(schemaPart)["propertyNames"] = enum(invariantIDs())
	case reflect.TypeFor[scenarios.Op]():
		object["minProperties"], object["maxProperties"] = 1, 1
	case reflect.TypeFor[scenarios.AnnotateOp](), reflect.TypeFor[scenarios.PatchOp](), reflect.TypeFor[scenarios.ObjectOp]():
		object["oneOf"] = []schemaPart{{"required": []string{"object"}}, {"required": []string{"kind", "labels"}}}
	case reflect.TypeFor[scenarios.Step]():
		object["anyOf"] = []schemaPart{{"required": []string{"when"}}, {"required": []string{"after"}}, {"required": []string{"do"}}, {"required": []string{"repeat"}}}
	case reflect.TypeFor[scenarios.Repeat]():
		properties["steps"] = schemaPart{"type": "array", "minItems": 1, "items": schemaPart{"type": "object"}, "description": b.docs["Repeat.steps"]}
		object["oneOf"] = []schemaPart{{"required": []string{"times"}}, {"required": []string{"for", "in"}}}
	case reflect.TypeFor[scenarios.Scenario]():
		// Where there are parameters, any field can be a reference to one.
		object["if"] = schemaPart{"not": schemaPart{"required": []string{"parameters"}}}
		object["then"] = schemaPart{"properties": schemaPart{"spec": properties["spec"]}}
		properties["spec"] = schemaPart{"type": "object", "description": b.docs["Scenario.spec"]}
	case reflect.TypeFor[scenarios.Trigger]():
		object["dependentRequired"] = schemaPart{"key": []string{"event"}, "host": []string{"event"}, "object": []string{"event"}, "actor": []string{"event"}, "value": []string{"event"}, "occurrence": []string{"event"}}
		object["anyOf"] = []schemaPart{{"required": []string{"event"}}, {"required": []string{"allOf"}}, {"required": []string{"anyOf"}}}
	case reflect.TypeFor[scenarios.Topology]():
		properties["hosts"].(schemaPart)["minItems"] = 1
		delete(object, "required") // of hosts
		object["oneOf"] = []schemaPart{{"required": []string{"hosts"}}, {"required": []string{"workers"}}}
	case reflect.TypeFor[scenarios.HostTimings](), reflect.TypeFor[scenarios.Limits]():
		b.defaults(t, properties)
	case reflect.TypeFor[scenarios.Controller]():
		object["allOf"] = b.perController()
	}
	return object
}

// defaults adds to durations what Compile makes of those that are left out.
func (b *schemaBuilder) defaults(t reflect.Type, properties schemaPart) {
	plan, err := scenarios.Compile(new(scenarios.Scenario), 0)
	if err != nil {
		return // unreachable: an empty scenario is plain data
	}
	var value reflect.Value
	switch t {
	case reflect.TypeFor[scenarios.HostTimings]():
		value = reflect.ValueOf(plan.Spec.Topology.Timings)
	default:
		value = reflect.ValueOf(plan.Spec.Limits)
	}
	for _, f := range fieldsOf(t) {
		if d := value.FieldByIndex(f.index); !d.IsZero() {
			properties[f.name].(schemaPart)["default"] = d.Interface()
		}
	}
}

// perController says for each controller what its settings and overlay can be.
func (b *schemaBuilder) perController() []schemaPart {
	names := slices.Sorted(maps.Keys(b.vocab.Controllers))
	parts := []schemaPart{{
		"if":   schemaPart{"not": schemaPart{"required": []string{"program"}}},
		"then": schemaPart{"properties": schemaPart{"name": enum(b.listed())}},
	}}
	for _, name := range names {
		vocab := b.vocab.Controllers[name]
		then := schemaPart{"settings": false, "overlay": false}
		if vocab.Settings != nil {
			defaults := vocab.Settings()
			then["settings"] = schemaPart{"$ref": b.value(reflect.TypeOf(defaults).Elem(), false)["$ref"], "default": defaults}
		}
		if len(vocab.Actions) > 0 {
			facts := schemaPart{}
			for _, fact := range vocab.Facts {
				facts[fact] = true
			}
			then["overlay"] = schemaPart{"items": schemaPart{"properties": schemaPart{
				"when": schemaPart{"properties": facts, "additionalProperties": false},
				"then": enum(vocab.Actions),
			}}}
		}
		parts = append(parts, schemaPart{
			"if":   schemaPart{"properties": schemaPart{"name": enum(several(name))}, "required": []string{"name"}},
			"then": schemaPart{"properties": then},
		})
	}
	return parts
}
