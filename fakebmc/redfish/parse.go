package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
	kjson "sigs.k8s.io/json"
)

// parse reads the body of an action strictly: it is an object whose names are spelled as
// the schemas have them (Redfish names are case-sensitive), each of which is known and
// there once, and none of what the service takes may be null.
func parse(body []byte, into any) (response, bool) {
	a, ok := parseProperties(body, into)
	if !ok && a.MessageID != msgMalformedJSON {
		a = refusal(http.StatusBadRequest, msgUnrecognizedBody, a.Cause)
	}
	return a, ok
}

// parseProperties does so too, and says which property is wrong.
func parseProperties(body []byte, into any) (response, bool) { return parseNullable(body, into) }

// given is the text of a property in a body, and whether it is there.
func given(body []byte, property string) (text string, there bool) {
	var all map[string]any
	_ = json.Unmarshal(body, &all) // what is no object has been refused
	value, there := all[property]
	text, _ = value.(string)
	return text, there
}

// parseNullable does so too, where some properties may be null.
func parseNullable(body []byte, into any, nullable ...string) (response, bool) {
	bad := func(id string, cause error, args ...string) (response, bool) {
		return refusal(http.StatusBadRequest, id, cause, args...), false
	}
	if !json.Valid(body) {
		return bad(msgMalformedJSON, nil)
	}
	var given map[string]any
	if err := json.Unmarshal(body, &given); err != nil || given == nil {
		return bad(msgUnrecognizedBody, err)
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if err != nil {
		wrong := new(json.UnmarshalTypeError) // whose like in kjson can't be had
		if !errors.As(json.Unmarshal(body, into), &wrong) {
			return bad(msgUnrecognizedBody, err)
		}
		return bad(msgPropertyType, err, wrong.Value, wrong.Field)
	}
	if len(strict) > 0 {
		err, id, path := strict[0], msgPropertyUnknown, ""
		if f := kjson.FieldError(nil); errors.As(err, &f) {
			path = strings.ReplaceAll(f.FieldPath(), ".", "/")
		}
		if strings.HasPrefix(err.Error(), "duplicate") {
			id = msgPropertyDuplicate
		}
		return bad(id, err, path)
	}
	maps.DeleteFunc(given, func(name string, v any) bool { return v == nil && slices.Contains(nullable, name) })
	if path := null(given); path != "" {
		return bad(msgPropertyType, errors.New("it is null"), "null", path)
	}
	return response{}, true
}

// null is the first property, by name, that is null, or "".
func null(o map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		switch v := o[name].(type) {
		case nil:
			return name
		case map[string]any:
			if inner := null(v); inner != "" {
				return name + "/" + inner
			}
		}
	}
	return ""
}

// maxQuoted is how long a body may be that is put on record.
const maxQuoted = 16 << 10

// quotable is a body as it may be put on record: empty unless it is an object in JSON, and without
// the secrets in it.
func quotable(body []byte) string {
	if len(body) == 0 || len(body) > maxQuoted { // as with every read
		return ""
	}
	var o map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&o) != nil || o == nil {
		return ""
	}
	hide(o)
	text, err := json.Marshal(o)
	if err != nil {
		return ""
	}
	return string(text)
}

// secret is what the names of properties have in them that nobody is to read in a log: passwords,
// tokens, and the headers that a subscription sends.
var secret = regexp.MustCompile(`(?i)password|token|authorization|httpheaders|privatekey`)

// hide replaces the secrets in a value of JSON by what has its shape, so that the request can be
// played again.
func hide(value any) { hidden(value, false) }

func hidden(value any, all bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v { // order does not matter: each is looked at by itself
			v[name] = hidden(inner, all || secret.MatchString(name))
		}
	case []any:
		for i, inner := range v {
			v[i] = hidden(inner, all)
		}
	case nil:
	default:
		if all {
			return "hidden"
		}
	}
	return value
}

// parseReset returns the reset type asked for, or an empty one and the refusal.
func parseReset(body []byte, action string) (fakebmc.ResetType, response) {
	var in struct{ ResetType fakebmc.ResetType }
	if a, ok := parse(body, &in); !ok {
		return "", a
	}
	return in.ResetType, refusal(http.StatusBadRequest, msgParameterMissing, nil, action, "ResetType")
}
