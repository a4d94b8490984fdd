package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
)

// query holds what a read asks for beside its path (DSP0266, query parameters).
type query struct {
	top, skip int    // of the members of a collection; -1 is not given
	filter    filter // nil is all
	expand    string // what links are expanded: ".", "*" or "~"; empty is none
	levels    int
}

// The bounds of an expansion: of its levels, and of the resources that it reads.
const (
	maxLevels   = 3
	maxExpanded = 5000
)

var expansion = regexp.MustCompile(`^([.*~])(?:\(\$levels=(\d{1,3})\))?$`)

// parseQuery reads the options to which OData gives a meaning. One that isn't supported is refused:
// to ignore it would be to answer another question.
func parseQuery(r *http.Request) (q query, a response, ok bool) {
	q = query{top: -1, skip: -1, levels: 1}
	if r.URL.RawQuery == "" {
		return q, response{}, true
	}
	wrong := func(name, value string, err error) (query, response, bool) {
		return query{}, refusal(http.StatusBadRequest, msgQueryFormat, err, value, name), false
	}
	for name, values := range r.URL.Query() { // order does not matter: one of them is refused
		if !strings.HasPrefix(name, "$") {
			continue
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return q, refusal(http.StatusBadRequest, msgQueryNotSupported, nil), false
		}
		value := values[0]
		switch name {
		case "$top", "$skip":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return wrong(name, value, err)
			}
			if name == "$top" {
				q.top = n
			} else {
				q.skip = n
			}
		case "$filter":
			var err error
			if q.filter, err = parseFilter(value); err != nil {
				return wrong(name, value, err)
			}
		case "$expand":
			parts := expansion.FindStringSubmatch(value)
			if parts == nil {
				return wrong(name, value, errors.New("it is none of ., * and ~, which may have ($levels=N)"))
			}
			q.expand = parts[1]
			if parts[2] != "" {
				q.levels, _ = strconv.Atoi(parts[2]) // digits
			}
			if q.levels < 1 || q.levels > maxLevels {
				return query{}, refusal(http.StatusBadRequest, msgQueryRange, nil, value, name, fmt.Sprintf("1 to %d levels", maxLevels)), false
			}
		default:
			return q, refusal(http.StatusNotImplemented, msgQueryNotSupported, nil), false
		}
	}
	return q, response{}, true
}

func (q query) isZero() bool { return q.top < 0 && q.skip < 0 && q.filter == nil && q.expand == "" }

// ask makes of a resource what a query asks for. Whatever else it leads to is read as the client
// would read it: rules, and the log, see each.
func (s *service) ask(q query, r *http.Request, o object) (object, response, bool) {
	members, list := membersOf(o)
	if !list && (q.top >= 0 || q.skip >= 0 || q.filter != nil) {
		return nil, refusal(http.StatusBadRequest, msgQueryNotOnResource, nil), false
	}
	x := &expander{service: s, client: r, left: maxExpanded}
	if list {
		if q.filter != nil {
			members = slices.DeleteFunc(members, func(member any) bool {
				one, _ := member.(object)
				if _, link := linkIn(member); link {
					one = x.read(member)
				}
				return one == nil || q.filter(one) != true
			})
		}
		o["Members@odata.count"] = len(members)
		from := min(max(q.skip, 0), len(members))
		to := len(members)
		if q.top >= 0 && from+q.top < to {
			to = from + q.top
			next := r.URL.Query()
			next.Set("$skip", strconv.Itoa(to))
			o["Members@odata.nextLink"] = (&url.URL{Path: r.URL.Path, RawQuery: next.Encode()}).String()
		}
		o["Members"] = members[from:to]
	}
	if q.expand == "" {
		return o, response{}, true
	}
	return x.expand(o, q.expand, q.levels), response{}, true
}

// membersOf are the links of a collection.
func membersOf(o object) (members []any, ok bool) {
	switch list := o["Members"].(type) {
	case []any:
		return slices.Clone(list), true
	case []object:
		for _, one := range list {
			members = append(members, one)
		}
		return members, true
	}
	return nil, false
}

// expander reads what links lead to, for a client.
type expander struct {
	*service
	client *http.Request
	left   int
}

// linkIn is the path to which a value that is nothing but a link leads.
func linkIn(v any) (path string, ok bool) {
	switch v := v.(type) {
	case reference:
		return v.ID, true
	case object:
		id, _ := v["@odata.id"].(string)
		return id, id != "" && len(v) == 1 && !strings.Contains(id, "#")
	}
	return "", false
}

// expand puts resources in the place of links to them: "." of those that belong to a resource, "~"
// of those that it is linked with, and "*" of both.
func (x *expander) expand(o object, which string, levels int) object {
	if levels == 0 {
		return o
	}
	var walk func(v any, linked bool) any
	walk = func(v any, linked bool) any {
		if _, ok := linkIn(v); ok {
			if which == "*" || linked == (which == "~") {
				if read := x.read(v); read != nil {
					return x.expand(read, which, levels-1)
				}
			}
			return v
		}
		switch v := v.(type) {
		case object:
			for _, key := range slices.Sorted(maps.Keys(v)) { // the order of the reads
				if key != "Actions" && !strings.HasPrefix(key, "@") {
					v[key] = walk(v[key], linked || key == "Links")
				}
			}
		case []object:
			all := make([]any, len(v))
			for i := range v {
				all[i] = walk(v[i], linked)
			}
			return all
		case []any:
			for i := range v {
				v[i] = walk(v[i], linked)
			}
		}
		return v
	}
	return walk(o, false).(object)
}

// read is the resource that a link leads to, as the client would be answered; nil if it
// would be refused.
func (x *expander) read(v any) object {
	to, ok := linkIn(v)
	if !ok || x.left == 0 {
		return nil
	}
	x.left--
	r := x.client.Clone(x.client.Context())
	r.Method, r.URL, r.Body = http.MethodGet, &url.URL{Path: place(to)}, http.NoBody
	for _, header := range []string{"If-None-Match", "If-Match", "Content-Type"} {
		r.Header.Del(header)
	}
	e := &exchange{r: r, e: x.resolver()(place(to)), answer: make(chan reply, 1)}
	req := fakebmc.Request{Client: r.RemoteAddr, Method: r.Method, Path: place(to)}
	x.decide(&req, e, nil, nil)
	lost := e.e.bmc.Lost()
	e.e.bmc.Serve(req, e)
	a, ok := e.await(x.hold, lost, x.closing)
	if !ok || a.Status != http.StatusOK {
		return nil
	}
	c := e.content(a)
	if c == nil || c.body == nil {
		return nil
	}
	bend(c.body, a.effects)
	tag := etag(marshal(c.body), c.settings)
	c.body["@odata.etag"] = tag
	impose(c.body, a.effects)
	return c.body
}

// filter decides about a resource: true, false, or nil where there is nothing to compare.
type filter func(o object) any

// parseFilter reads comparisons of properties with values, joined by and, or, not and brackets.
func parseFilter(text string) (filter, error) {
	p := &filterParser{rest: filterToken.FindAllString(text, -1)}
	if !sameTokens(text, p.rest) {
		return nil, errors.New("it has what is neither a name, a value nor an operator")
	}
	f, err := p.or()
	if err == nil && len(p.rest) > 0 {
		err = fmt.Errorf("%s comes unexpectedly", p.rest[0])
	}
	return f, err
}

var filterToken = regexp.MustCompile(`'(?:[^']|'')*'|[()]|[^\s()']+`)

// sameTokens reports whether nothing but space is between tokens.
func sameTokens(text string, tokens []string) bool {
	for _, token := range tokens {
		text = strings.TrimLeft(text, " \t")
		rest, ok := strings.CutPrefix(text, token)
		if !ok {
			return false
		}
		text = rest
	}
	return strings.TrimSpace(text) == ""
}

type filterParser struct {
	rest  []string
	depth int
}

// maxFilter is how deep brackets may be.
const maxFilter = 50

func (p *filterParser) next() string {
	if len(p.rest) == 0 {
		return ""
	}
	token := p.rest[0]
	p.rest = p.rest[1:]
	return token
}

func (p *filterParser) takes(token string) bool {
	if len(p.rest) == 0 || p.rest[0] != token {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *filterParser) or() (filter, error) {
	f, err := p.and()
	for err == nil && p.takes("or") {
		var g filter
		left := f
		if g, err = p.and(); err == nil {
			f = func(o object) any { return left(o) == true || g(o) == true }
		}
	}
	return f, err
}

func (p *filterParser) and() (filter, error) {
	f, err := p.unary()
	for err == nil && p.takes("and") {
		var g filter
		left := f
		if g, err = p.unary(); err == nil {
			f = func(o object) any { return left(o) == true && g(o) == true }
		}
	}
	return f, err
}

func (p *filterParser) unary() (filter, error) {
	if p.depth++; p.depth > maxFilter {
		return nil, errors.New("it is too deep")
	}
	defer func() { p.depth-- }()
	switch {
	case p.takes("not"):
		f, err := p.unary()
		return func(o object) any { return f(o) == false }, err
	case p.takes("("):
		f, err := p.or()
		if err == nil && !p.takes(")") {
			err = errors.New("a bracket is not closed")
		}
		return f, err
	}
	return p.comparison()
}

func (p *filterParser) comparison() (filter, error) {
	property, operator, literal := p.next(), p.next(), p.next()
	if !filterName.MatchString(property) {
		return nil, fmt.Errorf("%q is no property", property)
	}
	value, err := literalOf(literal)
	if err != nil {
		return nil, err
	}
	compares, ok := comparisons[operator]
	if !ok {
		return nil, fmt.Errorf("%q is none of eq, ne, gt, ge, lt and le", operator)
	}
	path := strings.Split(property, "/")
	return func(o object) any {
		have, ok := plainly(inside(o, path...))
		if !ok {
			return nil
		}
		return compares(have, value)
	}, nil
}

var filterName = regexp.MustCompile(`^[A-Za-z@][A-Za-z0-9_.@/-]*$`)

// plainly is a value as JSON has it: a text, a number, a truth or nil.
func plainly(v any) (any, bool) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	var plain any
	if json.Unmarshal(data, &plain) != nil {
		return nil, false
	}
	return plain, true
}

func literalOf(text string) (any, error) {
	switch {
	case len(text) >= 2 && text[0] == '\'':
		return strings.ReplaceAll(text[1:len(text)-1], "''", "'"), nil
	case text == "null":
		return nil, nil
	case text == "true", text == "false":
		return text == "true", nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is no value: write texts as 'text'", text)
	}
	return n, nil
}

// comparisons compare what has the same type; nothing else is more or less than another.
var comparisons = map[string]func(a, b any) any{
	"eq": func(a, b any) any { return equalValues(a, b) },
	"ne": func(a, b any) any { return !equalValues(a, b) },
	"gt": func(a, b any) any { c, ok := order(a, b); return ok && c > 0 },
	"ge": func(a, b any) any { c, ok := order(a, b); return ok && c >= 0 },
	"lt": func(a, b any) any { c, ok := order(a, b); return ok && c < 0 },
	"le": func(a, b any) any { c, ok := order(a, b); return ok && c <= 0 },
}

func equalValues(a, b any) bool {
	switch a.(type) {
	case nil, string, float64, bool:
		return a == b
	}
	return false
}

func order(a, b any) (c int, ok bool) {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		switch {
		case a < b:
			return -1, ok
		case a > b:
			return 1, ok
		}
		return 0, ok
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	}
	return 0, false
}
