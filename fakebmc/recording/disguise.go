package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kind is a kind of values that give away whose a service is, or let somebody in.
type kind struct {
	name string
	// names are the properties by which a value is known for one, whatever it looks like; nil for a
	// kind that is known by its form alone.
	names *regexp.Regexp
	// called is the n-th one afterwards.
	called func(n int) string
	// numbers says that a number can be one, too.
	numbers bool
}

func numbered(word string) func(n int) string {
	return func(n int) string { return fmt.Sprintf("%s-%d", word, n) }
}

// kinds are all of them. A property is of the first one that its name matches.
var kinds = []kind{
	{"mac", regexp.MustCompile(`(?i)mac_?addr(ess)?(es)?$|^(permanent|virtual|current|node)?_?mac$`), func(n int) string {
		return fmt.Sprintf("02:00:00:%02X:%02X:%02X", n>>16&255, n>>8&255, n&255)
	}, false},
	{"uuid", nil, func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }, false},
	{"ipv4", nil, func(n int) string { return fmt.Sprintf("192.0.2.%d", 1+(n-1)%254) }, false},
	{"ipv6", nil, func(n int) string { return fmt.Sprintf("2001:db8::%x", n) }, false},
	{"certificate", regexp.MustCompile(`(?i)certificatestring|^pem$|public_?key|^issuer$|^subject$|fingerprint|thumbprint`), numbered("CERTIFICATE"), false},
	{"secret", regexp.MustCompile(`(?i)passw(or)?d$|passw(or)?d[_.]?(hash|value)|passphrase|secret|credential|^pin(_?code)?$|^pwd$|(^|[a-z._-])tokens?$|token_?(value|string)|^sid$|community|cookie|authorization|httpheaders|` +
		`(private|api|access|shared|session|auth(entication)?|encryption|license|activation|ssh|security|hmac|wep|wpa|psk|bind)_?keys?$`), numbered("SECRET"), true},
	{"serial", regexp.MustCompile(`(?i)serial|service_?(tag|code)|^sku$|asset_?tag|chassis_?tag|license|nodeid|durablename|^wwn|wwpn|wwnn|guid`), numbered("SERIAL"), true},
	{"host", regexp.MustCompile(`(?i)host_?name|fqdn|domain_?name|^dns|nameserver|ntpserver|distinguishedname`), numbered("host"), false},
	{"user", regexp.MustCompile(`(?i)user_?name|^login|e_?mail|contact|^owner$`), numbered("user"), false},
	{"place", regexp.MustCompile(`(?i)^address$|location$|^rack$|^room$|postaladdress|building|street|city`), numbered("place"), false},
}

// Kinds names the kinds of values that a recording has others for.
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// kindOf is the kind of a property's values, or nil.
func kindOf(property string) *kind {
	for i := range kinds {
		if kinds[i].names != nil && kinds[i].names.MatchString(property) {
			return &kinds[i]
		}
	}
	return nil
}

// What gives away whose a service is, wherever it stands in a text.
var (
	macs     = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,7}\b|\b[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\b`)
	bareMACs = regexp.MustCompile(`\b(?:[0-9A-F]{12}|[0-9a-f]{12})\b`)
	uuids    = regexp.MustCompile(`\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b`)
	ipv4s    = regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}\b`)
	ipv6s    = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*`)
	logins   = regexp.MustCompile(`://([^/\s:@]+)(?::([^/\s@]*))?@`)
	hosts    = regexp.MustCompile(`\b(?:https?|ftps?|nfs|cifs|smb|scp|sftp|tftp|ldaps?|syslog)://(?:[^/\s@]*@)?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)`)
	mails    = regexp.MustCompile(`\b([A-Za-z0-9._%+-]+)@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)\b`)
	queries  = regexp.MustCompile(`(?i)[?&]([^=&#\s]*)=([^&#\s"]+)`)
	bearers  = regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/=._~-]{8,})`)
)

// publishers are the hosts that publish what services refer to.
var publishers = regexp.MustCompile(`(?i)(^|\.)(dmtf\.org|snia\.org|oasis-open\.org|w3\.org|json-schema\.org|ietf\.org|openbmc\.org)$`)

// shortest is the length from which on a value is also replaced inside of others, such as a serial
// number in a path.
const shortest = 5

// Replaced says what became of the values of a kind.
type Replaced struct {
	Kind   string
	Values int
	// Where are the properties whose values they were, or had them in them.
	Where []string
}

// disguised are the values that were replaced, by what they are called now.
type disguised struct {
	keep    map[string]bool
	names   map[string]string
	written map[string]string // the same by kind and value, however that is written
	counts  map[string]int
	where   map[string]map[string]bool // the properties, by kind
}

// disguise copies the resources below one directory to another and replaces the values that
// identify their owner, such as serial numbers. Values of the kinds in keep stay as they are.
func disguise(from, to string, keep []string) (*Recorded, error) {
	d := &disguised{map[string]bool{}, map[string]string{}, map[string]string{}, map[string]int{}, map[string]map[string]bool{}}
	for _, kind := range keep {
		d.keep[kind] = true
	}
	resources := make(map[string]any)
	err := walk(from, func(at string, data []byte) error {
		if filepath.Base(at) != "index.json" {
			return nil
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber() // or large ones would be rounded
		var v any
		if err := decoder.Decode(&v); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		resources[at] = v
		d.learn("", v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	recorded := &Recorded{Resources: len(resources), Replaced: d.replaced()}
	inside := d.replacer()
	return recorded, walk(from, func(at string, data []byte) error {
		name := filepath.Base(at)
		switch {
		case name == "index.json":
			var err error
			if data, err = json.MarshalIndent(d.replace("", resources[at], inside), "", "  "); err != nil {
				return err
			}
			data = append(data, '\n')
		case name != "index.xml":
			return nil
		}
		return write(filepath.Join(to, inside.Replace(filepath.Dir(at))), name, data)
	})
}

// replaced lists the kinds of which there was something.
func (d *disguised) replaced() (all []Replaced) {
	for _, k := range kinds {
		if n := d.counts[k.name]; n > 0 {
			all = append(all, Replaced{k.name, n, slices.Sorted(maps.Keys(d.where[k.name]))})
		}
	}
	return all
}

// replacer replaces values inside of others, also as a link spells them: the longest first, since
// one may be within another.
func (d *disguised) replacer() *strings.Replacer {
	spelled := make(map[string]string)
	for value, name := range d.names { // order does not matter: into a map
		if len(value) >= shortest {
			spelled[value], spelled[url.PathEscape(value)] = name, url.PathEscape(name)
			spelled[value] = name
		}
	}
	values := slices.SortedFunc(maps.Keys(spelled), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	var pairs []string
	for _, value := range values {
		pairs = append(pairs, value, spelled[value])
	}
	return strings.NewReplacer(pairs...)
}

// walk does something with each file below a directory, in the order of their names.
func walk(dir string, do func(at string, data []byte) error) error {
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		at, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return do(at, data)
	})
}

// holders are the properties all of whose inner values are secrets, whatever those are called.
var holders = regexp.MustCompile(`(?i)^(secrets|tokens|passwords|credentials|httpheaders|cookies)$`)

// learn looks for values that identify their owner.
func (d *disguised) learn(property string, v any) {
	switch v := v.(type) {
	case map[string]any:
		named := pair(v)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if isName(key) {
				d.learnText(key, key, nil)
			}
			d.learn(inner(property, key, named), v[key])
		}
	case []any:
		for _, one := range v {
			d.learn(property, one)
		}
	case string:
		d.learnText(property, v, kindOf(property))
	case json.Number:
		if k := kindOf(property); k != nil && k.numbers && len(v) >= shortest {
			d.call(property, string(v), k, string(v), func(n int) string { return fmt.Sprint(n) })
		}
	}
}

// inner is the property as which a value inside of another counts.
func inner(outer, key, named string) string {
	switch {
	case strings.Contains(key, "@odata."):
		return key
	case holders.MatchString(outer):
		return outer
	case named != "" && (key == "Value" || strings.HasSuffix(key, "Value")):
		return named
	}
	return key
}

// isName reports whether a key names a property, and is neither an annotation, which looks like an
// e-mail address, nor an action.
func isName(key string) bool { return !strings.ContainsAny(key, "@#") }

// pair is the name in an object that is a name with its value, as registries of attributes have
// them.
func pair(o map[string]any) string {
	for _, key := range []string{"AttributeName", "Name", "Key", "Id"} {
		if name, ok := o[key].(string); ok && kindOf(name) != nil {
			return name
		}
	}
	return ""
}

// learnText looks into a text, which is as a whole of a kind or of none.
func (d *disguised) learnText(property, text string, whole *kind) {
	if strings.HasPrefix(property, "@odata.") && property != "@odata.id" || strings.HasSuffix(property, "@odata.type") {
		return // what it is
	}
	of := func(name string) *kind {
		return &kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
	}
	for _, login := range logins.FindAllStringSubmatch(text, -1) {
		named := d.call(property, login[1], of("user"), login[1], nil)
		if login[2] != "" {
			named += ":" + d.call(property, login[2], of("secret"), login[2], nil)
		}
		d.names[login[0]] = "://" + named + "@" // however short they are
	}
	for _, mail := range mails.FindAllStringSubmatch(logins.ReplaceAllString(text, "://"), -1) {
		d.names[mail[0]] = d.call(property, mail[1], of("user"), mail[1], nil) + "@" + d.call(property, mail[2], of("host"), mail[2], nil)
	}
	for _, query := range queries.FindAllStringSubmatch(text, -1) {
		if k := kindOf(query[1]); k != nil {
			d.names[query[0]] = strings.TrimSuffix(query[0], query[2]) + d.call(property, query[2], k, query[2], nil)
		}
	}
	for _, bearer := range bearers.FindAllStringSubmatch(text, -1) {
		d.call(property, bearer[1], of("secret"), bearer[1], nil)
	}
	for _, host := range hosts.FindAllStringSubmatch(text, -1) {
		if _, err := netip.ParseAddr(host[1]); err != nil && strings.Contains(host[1], ".") && !publishers.MatchString(host[1]) {
			d.call(property, host[1], of("host"), host[1], nil)
		}
	}
	for _, uuid := range uuids.FindAllString(text, -1) {
		d.call(property, uuid, of("uuid"), strings.ToUpper(uuid), nil)
	}
	rest := uuids.ReplaceAllString(text, " ")
	for _, mac := range macs.FindAllString(rest, -1) {
		d.callMAC(property, mac)
	}
	for _, mac := range bareMACs.FindAllString(rest, -1) {
		if whole != nil && whole.name == "mac" || strings.ContainsAny(mac, "ABCDEFabcdef") && strings.ContainsAny(mac, "0123456789") {
			d.callMAC(property, mac)
		}
	}
	rest = macs.ReplaceAllString(rest, " ")
	for _, ip := range ipv4s.FindAllString(rest, -1) {
		if a, err := netip.ParseAddr(ip); err == nil && telling(a) && !strings.Contains(strings.ToLower(property), "version") {
			d.call(property, ip, of("ipv4"), ip, nil)
		}
	}
	for _, ip := range ipv6s.FindAllString(rest, -1) {
		ip = strings.TrimRight(ip, ".")
		if a, err := netip.ParseAddr(ip); err == nil && telling(a) {
			d.call(property, ip, of("ipv6"), a.String(), nil)
		}
	}
	if _, known := d.names[text]; known || whole == nil || strings.TrimSpace(text) == "" {
		return
	}
	if whole.name == "mac" {
		return // what is none has another form
	}
	d.call(property, text, whole, text, nil)
}

// telling reports whether an address is somebody's, and not one that every machine has.
func telling(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && !isMask(a)
}

// isMask reports whether an address is the mask of a subnet.
func isMask(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	b := a.As4()
	bits := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return b[0] == 255 && ^bits&(^bits+1) == 0
}

// spellings are the ways in which the digits of a MAC are set apart.
var spellings = []struct {
	group int
	by    string
}{{2, ":"}, {2, "-"}, {4, "."}, {12, ""}}

// callMAC gives a MAC another one, and each spelling of it that spelling of the other.
func (d *disguised) callMAC(property, mac string) {
	digits := func(text string) string { return strings.NewReplacer(":", "", "-", "", ".", "").Replace(text) }
	bare := digits(mac)
	named := digits(d.call(property, mac, &kinds[0], strings.ToUpper(bare), nil))
	if strings.EqualFold(named, bare) || len(bare) != 12 { // kept, or longer than a MAC
		return
	}
	for _, s := range spellings {
		apart := func(text string) string {
			var groups []string
			for group := range slices.Chunk([]byte(text), s.group) {
				groups = append(groups, string(group))
			}
			return strings.Join(groups, s.by)
		}
		for _, text := range []string{strings.ToUpper(bare), strings.ToLower(bare), bare} {
			d.names[apart(text)] = apart(named)
		}
	}
}

// call gives a value another name, the same for whatever is the same, and returns it.
func (d *disguised) call(property, value string, k *kind, same string, called func(n int) string) string {
	if name, known := d.names[value]; known {
		d.note(k, property)
		return name
	}
	if d.keep[k.name] {
		return value
	}
	same = k.name + " " + same
	if d.written[same] == "" {
		d.counts[k.name]++
		if called == nil {
			called = k.called
		}
		d.written[same] = called(d.counts[k.name])
	}
	d.names[value] = d.written[same]
	d.note(k, property)
	return d.names[value]
}

// note keeps where a kind was found.
func (d *disguised) note(k *kind, property string) {
	if d.where[k.name] == nil {
		d.where[k.name] = make(map[string]bool)
	}
	d.where[k.name][property] = true
}

// replace returns a copy of v in which identifying values have their substitutes. A short value is
// replaced only where its property tells its kind: elsewhere it may be anything.
func (d *disguised) replace(property string, v any, inside *strings.Replacer) any {
	switch v := v.(type) {
	case map[string]any:
		named := pair(v)
		o := make(map[string]any, len(v))
		for key, value := range v {
			to := key
			if isName(key) {
				to = inside.Replace(key)
			}
			o[to] = d.replace(inner(property, key, named), value, inside)
		}
		return o
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = d.replace(property, v[i], inside)
		}
		return all
	case string:
		if name, ok := d.names[v]; ok && (len(v) >= shortest || kindOf(property) != nil) {
			return name
		}
		return inside.Replace(v)
	case json.Number:
		if k := kindOf(property); k != nil && k.numbers && d.names[string(v)] != "" {
			return json.Number(d.names[string(v)])
		}
	}
	return v
}
