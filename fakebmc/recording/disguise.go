package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What tells whose a service is, wherever it stands in a text.
var (
	macs  = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,7}\b`)
	uuids = regexp.MustCompile(`\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b`)
	ipv4s = regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}\b`)
)

// kinds are the properties by whose name a value is known for what it is, each with what it is
// called afterwards.
var kinds = []struct {
	called string
	names  *regexp.Regexp
}{
	{"SERIAL", regexp.MustCompile(`(?i)serial|service_?tag|^sku$|asset_?tag|chassis_?tag|license|nodeid|durablename|^wwn|wwpn|wwnn|guid|macaddress$`)},
	{"host", regexp.MustCompile(`(?i)host_?name|fqdn|domain_?name|^dns|nameserver|ntpserver|distinguishedname`)},
	{"user", regexp.MustCompile(`(?i)user_?name|^login|email|community|contact|^owner$`)},
	{"place", regexp.MustCompile(`(?i)^address$|location$|^rack$|^room$|postaladdress|building|street|city`)},
	{"CERTIFICATE", regexp.MustCompile(`(?i)certificatestring|^pem$|publickey|sshkey|^issuer$|^subject$`)},
}

// shortest is the length from which on a value is also replaced inside of others, such as a serial
// number in a path.
const shortest = 5

// disguised are the values that were replaced, by what they are called now, and how many of each
// kind there are.
type disguised struct {
	names   map[string]string
	written map[string]string // the same by kind and value, however that is written
	counts  map[string]int
}

// disguise copies the resources below one directory to another, with other names for what tells
// whose they are.
func disguise(from, to string) (*Recorded, error) {
	d := &disguised{make(map[string]string), make(map[string]string), make(map[string]int)}
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
	recorded := &Recorded{Resources: len(resources), Replaced: len(d.names)}
	values := make([]string, 0, len(d.names))
	for value := range d.names {
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b string) int { // the longest first: one may be within another
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, value := range values {
		if len(value) >= shortest {
			pairs = append(pairs, value, d.names[value])
		}
	}
	inside := strings.NewReplacer(pairs...)
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

// learn looks for values that tell whose they are.
func (d *disguised) learn(property string, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			d.learn(key, v[key])
		}
	case []any:
		for _, one := range v {
			d.learn(property, one)
		}
	case string:
		d.learnText(property, v)
	}
}

func (d *disguised) learnText(property, text string) {
	if strings.HasPrefix(property, "@odata.") || strings.HasSuffix(property, "@odata.type") {
		return // what it is, and where
	}
	for _, mac := range macs.FindAllString(text, -1) {
		d.call(mac, "mac", func(n int) string { return fmt.Sprintf("02:00:00:%02X:%02X:%02X", n>>16&255, n>>8&255, n&255) })
	}
	for _, uuid := range uuids.FindAllString(text, -1) {
		d.call(uuid, "uuid", func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) })
	}
	for _, ip := range ipv4s.FindAllString(text, -1) {
		if a, err := netip.ParseAddr(ip); err == nil && telling(a) && !strings.Contains(strings.ToLower(property), "version") {
			d.call(ip, "ipv4", func(n int) string { return fmt.Sprintf("192.0.2.%d", 1+(n-1)%254) })
		}
	}
	if bare, _, _ := strings.Cut(text, "/"); strings.Contains(bare, ":") {
		if a, err := netip.ParseAddr(bare); err == nil && telling(a) {
			d.call(bare, "ipv6", func(n int) string { return fmt.Sprintf("2001:db8::%x", n) })
		}
	}
	if _, known := d.names[text]; known || strings.TrimSpace(text) == "" {
		return
	}
	for _, kind := range kinds {
		if kind.names.MatchString(property) {
			d.call(text, kind.called, func(n int) string { return fmt.Sprintf("%s-%d", kind.called, n) })
			return
		}
	}
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

// call gives a value another name, the same each time, however the value is written.
func (d *disguised) call(value, kind string, name func(n int) string) {
	if _, known := d.names[value]; known {
		return
	}
	same := kind + " " + strings.ToUpper(strings.ReplaceAll(value, "-", ":"))
	if d.written[same] == "" {
		d.counts[kind]++
		d.written[same] = name(d.counts[kind])
	}
	d.names[value] = d.written[same]
}

// replace is a value with the other names. A short value is replaced only where its property says
// what it is.
func (d *disguised) replace(property string, v any, inside *strings.Replacer) any {
	switch v := v.(type) {
	case map[string]any:
		o := make(map[string]any, len(v))
		for key, value := range v {
			o[key] = d.replace(key, value, inside)
		}
		return o
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = d.replace(property, v[i], inside)
		}
		return all
	case string:
		if name, ok := d.names[v]; ok && (len(v) >= shortest || isKind(property)) {
			return name
		}
		return inside.Replace(v)
	}
	return v
}

func isKind(property string) bool {
	return slices.ContainsFunc(kinds, func(k struct {
		called string
		names  *regexp.Regexp
	}) bool {
		return k.names.MatchString(property)
	})
}
