package recording_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/recording"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// service is a Redfish service of a few resources, which counts what it is asked.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // bodies by path; "503" and the like are statuses
	asked   []string
	fails   func(path string) bool // breaks the connection
}

func serve(t *testing.T, answers map[string]string) *service {
	t.Helper()
	s := &service{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := strings.TrimSuffix(r.URL.Path, "/")
		if r.URL.RawQuery != "" {
			at += "?" + r.URL.RawQuery
		}
		s.asked = append(s.asked, r.Method+" "+at)
		user, password, _ := r.BasicAuth()
		var status int
		switch body := s.answers[at]; {
		case s.fails != nil && s.fails(at):
			panic(http.ErrAbortHandler)
		case user != "me" || password != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case body == "":
			w.WriteHeader(http.StatusNotFound)
		case len(body) == 3:
			fmt.Sscan(body, &status)
			w.WriteHeader(status)
		default:
			fmt.Fprint(w, body)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) options() recording.Options {
	return recording.Options{URL: s.URL, Username: "me", Password: "secret", Skip: recording.Volatile}
}

// acme is a service with what tells whose it is, pages, a refusal, and what is not to be read.
func acme() map[string]string {
	return map[string]string{
		"/redfish/v1": `{"@odata.id": "/redfish/v1/", "UUID": "4C4C4544-0042-3010-8048-B1C04F4D3933", "Systems": {"@odata.id": "/redfish/v1/Systems"},
			"SessionService": {"@odata.id": "/redfish/v1/SessionService"}, "JsonSchemas": {"@odata.id": "/redfish/v1/JsonSchemas"}, "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}}`,
		"/redfish/v1/$metadata":                       `<edmx:Edmx Version="4.0"/>`,
		"/redfish/v1/Systems":                         `{"@odata.id": "/redfish/v1/Systems", "Members": [{"@odata.id": "/redfish/v1/Systems/XYZ1234"}], "Members@odata.count": 2, "Members@odata.nextLink": "/redfish/v1/Systems?$skip=1"}`,
		"/redfish/v1/Systems?$skip=1":                 `{"@odata.id": "/redfish/v1/Systems", "Members": [{"@odata.id": "/redfish/v1/Systems/Two/"}]}`,
		"/redfish/v1/JsonSchemas":                     `{"@odata.id": "/redfish/v1/JsonSchemas"}`,
		"/redfish/v1/Systems/XYZ1234":                 `{"@odata.id": "/redfish/v1/Systems/XYZ1234", "@odata.type": "#ComputerSystem.v1_9_0.ComputerSystem", "Id": "XYZ1234", "SerialNumber": "XYZ1234", "HostName": "rack7.example.org", "SKU": "AB", "Model": "AB 10", "BiosVersion": "2.1.3.4", "UUID": "4C4C4544-0042-3010-8048-B1C04F4D3933", "Big": 12345678901234567890, "Description": "rack7.example.org at 10.1.2.3, 3C:EC:EF:01:02:03", "Bios": {"@odata.id": "/redfish/v1/Systems/XYZ1234/Bios"}, "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/XYZ1234/Actions/ComputerSystem.Reset", "@Redfish.ActionInfo": "/redfish/v1/Systems/XYZ1234/ResetActionInfo"}}, "Log": {"@odata.id": "/redfish/v1/Systems/XYZ1234/LogServices/Sel/Entries/1"}}`,
		"/redfish/v1/Systems/Two":                     `{"@odata.id": "/redfish/v1/Systems/Two", "Nic": {"MACAddress": "3c-ec-ef-01-02-03", "IPv4Addresses": [{"Address": "10.1.2.3", "SubnetMask": "255.255.255.0", "Gateway": "10.1.2.1"}], "IPv6Addresses": [{"Address": "fe80::3eec:efff:fe01:203"}]}, "Elsewhere": {"@odata.id": "http://other.example.org/redfish/v1/Systems/3"}, "Up": {"@odata.id": "/redfish/v1/../../etc/passwd"}, "Fragment": {"@odata.id": "/redfish/v1/Systems/Two#/Nic"}}`,
		"/redfish/v1/Systems/XYZ1234/Bios":            "503",
		"/redfish/v1/Systems/XYZ1234/ResetActionInfo": `{"@odata.id": "/redfish/v1/Systems/XYZ1234/ResetActionInfo", "Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]}`,
		"/redfish/v1/SessionService":                  `{"@odata.id": "/redfish/v1/SessionService", "Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}`,
		"/redfish/v1/SessionService/Sessions":         `{"@odata.id": "/redfish/v1/SessionService/Sessions", "Members": [{"@odata.id": "/redfish/v1/SessionService/Sessions/8", "UserName": "jane.doe"}]}`,
		"/redfish/v1/SessionService/Sessions/8":       `{}`,
	}
}

// all is what a directory has, file by file.
func all(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		files[strings.TrimPrefix(file, dir+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestRecord: what a service leads to is read once, by GET alone, and written without what tells
// whose it is. What could not be read is said. The recording is a mockup that a host can look like.
func TestRecord(t *testing.T) {
	s := serve(t, acme())
	dir := filepath.Join(t.TempDir(), "acme")
	recorded, err := recording.Record(t.Context(), dir, s.options())
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Resources != 8 || len(recorded.Refused) != 1 || recorded.Refused[0] != "/redfish/v1/Systems/XYZ1234/Bios: 503 Service Unavailable" {
		t.Errorf("recorded %+v", recorded)
	}
	once := make(map[string]bool)
	for _, asked := range s.asked {
		if once[asked] || !strings.HasPrefix(asked, "GET ") || strings.Contains(asked, "JsonSchemas") || strings.Contains(asked, "Entries") || strings.Contains(asked, "Sessions/") || strings.Contains(asked, "passwd") {
			t.Errorf("it asked %s", asked)
		}
		once[asked] = true
	}
	files := all(t, dir)
	for file, text := range files {
		for _, telling := range []string{"XYZ1234", "rack7", "example.org\"", "10.1.2", "3C:EC", "3c-ec", "4C4C4544", "fe80", "jane", "\"SKU\": \"AB\""} {
			if strings.Contains(file+text, telling) {
				t.Errorf("%s has %s:\n%s", file, telling, text)
			}
		}
	}
	if left := files["redfish/v1/JsonSchemas/index.json"]; !strings.Contains(left, "#JsonSchemaFileCollection.") {
		t.Errorf("a collection that is skipped is %q", left)
	}
	system := files["redfish/v1/Systems/SERIAL-2/index.json"]
	if system == "" {
		system = files["redfish/v1/Systems/SERIAL-1/index.json"]
	}
	for _, kept := range []string{`"Model": "AB 10"`, `"BiosVersion": "2.1.3.4"`, "12345678901234567890", "#ComputerSystem.v1_9_0.ComputerSystem", "host-2 at 192.0.2.1, 02:00:00:00:00:01"} {
		if !strings.Contains(system, kept) {
			t.Errorf("the system has no %s:\n%s", kept, system)
		}
	}
	var list struct{ Members []any }
	if err := json.Unmarshal([]byte(files["redfish/v1/Systems/index.json"]), &list); err != nil || len(list.Members) != 2 {
		t.Errorf("of two pages there are %d members, %v", len(list.Members), err)
	}
	if _, err := redfish.LoadMockup(dir); err != nil {
		t.Error(err)
	}
}

// TestResume: a recording that was interrupted goes on where it was, and until it is whole nothing
// else is in its directory.
func TestResume(t *testing.T) {
	s := serve(t, acme())
	dir := filepath.Join(t.TempDir(), "acme")
	s.fails = func(path string) bool { return path == "/redfish/v1/Systems/Two" }
	if _, err := recording.Record(t.Context(), dir, s.options()); err == nil || !strings.Contains(err.Error(), "record "+s.URL) {
		t.Fatalf("a connection that breaks: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != ".raw" {
		t.Errorf("it has %v, %v", entries, err)
	}
	s.mu.Lock()
	s.fails, s.asked = nil, nil
	s.mu.Unlock()
	recorded, err := recording.Record(t.Context(), dir, s.options())
	if err != nil || recorded.Resources != 8 {
		t.Fatalf("%+v, %v", recorded, err)
	}
	for _, asked := range s.asked {
		if asked == "GET /redfish/v1" || strings.HasSuffix(asked, "/Systems") {
			t.Errorf("%s was read before", asked)
		}
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := recording.Record(t.Context(), whole, s.options()); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(all(t, dir)), fmt.Sprint(all(t, whole)); a != b {
		t.Errorf("it is not what it is without an interruption:\n%s\n%s", a, b)
	}
}

// TestNoRecording: what can't be recorded is told with what to do.
func TestNoRecording(t *testing.T) {
	s := serve(t, acme())
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		dir  string
		with func(*recording.Options)
		want string
	}{
		"a wrong password":   {t.Context(), "", func(o *recording.Options) { o.Password = "no" }, "/redfish/v1 answers 401 Unauthorized: name the user with --username"},
		"no URL":             {t.Context(), "", func(o *recording.Options) { o.URL = "bmc.example.org" }, "name the service as http://HOST:PORT"},
		"a bad pattern":      {t.Context(), "", func(o *recording.Options) { o.Skip = []string{"["} }, "skip [: that can't be done: syntax error"},
		"nobody there":       {t.Context(), "", func(o *recording.Options) { o.URL = "http://127.0.0.1:1" }, "connection refused"},
		"a directory in use": {t.Context(), full, func(*recording.Options) {}, "is not empty, and no recording that was interrupted"},
		"no time":            {over, "", func(*recording.Options) {}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.options()
			c.with(&o)
			dir := c.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "new")
			}
			if _, err := recording.Record(c.ctx, dir, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestRecordsItself: a BMC of fencelab's is recorded, and looks the same as its mockup, but for
// what tells whose it is.
func TestRecordsItself(t *testing.T) {
	server, err := redfish.NewServer(redfish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	url, err := server.Listen("127.0.0.1:0", fakebmc.New("worker-1", memory.New(wall.Clock(), memory.Timing{}, true), wall.Clock()))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "own")
	first, err := recording.Record(t.Context(), dir, recording.Options{URL: url, Skip: recording.Volatile})
	if err != nil || len(first.Refused) > 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	m, err := redfish.LoadMockup(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := redfish.NewServer(redfish.Config{Mockup: m})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if url, err = other.Listen("127.0.0.1:0", fakebmc.New("worker-2", memory.New(wall.Clock(), memory.Timing{}, true), wall.Clock(), m.Locate())); err != nil {
		t.Fatal(err)
	}
	second, err := recording.Record(t.Context(), filepath.Join(t.TempDir(), "again"), recording.Options{URL: url, Skip: recording.Volatile})
	if err != nil || second.Resources != first.Resources || len(second.Refused) > 0 {
		t.Errorf("of %d resources the mockup has %+v, %v", first.Resources, second, err)
	}
}

// TestDisguise: whatever kind a secret is of and wherever it stands, it isn't in the recording,
// unless its kind is kept; what is none is as it was.
func TestDisguise(t *testing.T) {
	const telling = `{"@odata.id": "/redfish/v1", "Systems": {"@odata.id": "/redfish/v1/Systems/3cecef0a0b0c"}, "Description": "ask joe@mail.acme.example or see https://wiki.acme.example/bmc?token=t0k3n&page=7",
		"Oem": {"Acme": {"Password": "hunter2!", "AdminPasswd": "hunter3!", "Secret": "s3cr3t-1", "PrivateKey": "MIIEvQ-key", "ApiToken": "tok-12345", "LicenseKey": "LIC-12345", "SNMPCommunity": "publik",
			"ExpressServiceCode": "23456789012", "ServiceCode": 34567890123, "Tokens": ["a1b2c3d4e5", "f6"], "Credentials": {"Value": "cr3d"}, "HttpHeaders": [{"X-Auth": "h3ader"}], "Pin": 123456,
			"Share": "nfs://svc:sh4re@nas.acme.example/iso", "Short": "ftp://u:p@192.168.7.8/", "Header": "Authorization: Bearer abcdefgh12345678", "Gateway": "[fd12:3456::9]:443",
			"Attributes": [{"AttributeName": "Users.2.Password", "CurrentValue": "attr-pw"}, {"Name": "ApiToken", "Value": "attr-tok"}, {"AttributeName": "BootMode", "CurrentValue": "Uefi"}]}},
		"Nics": [{"MACAddress": "3C:EC:EF:0A:0B:0C"}, {"Id": "NIC.3CECEF0A0B0C", "Text": "3cec.ef0a.0b0c"}, {"MACAddress": "3C-EC-EF-0A-0B-0D", "Other": "3cecef0a0b0d"}, {"Unknown": "mac a0b1c2d3e4f5 is up"}], "3C:EC:EF:0A:0B:0C": {"Up": true},
		"PasswordPolicy": "Strict", "TokenType": "None", "MaxPasswordLength": 20, "PasswordChangeRequired": true, "KeyLength": 2048, "Model": "SSD 480 GB", "FirmwareVersion": "2.1.3.4", "Schema": "https://redfish.dmtf.org/schemas/v1/x.json", "At": "2026-11-28T10:11:12Z"}`
	secrets := map[string][]string{
		"secret": {"hunter2", "hunter3", "s3cr3t", "MIIEvQ", "tok-12345", "t0k3n", "LIC-1", "publik", "a1b2c3d4e5", "cr3d", "h3ader", "123456,", "sh4re", ":p@", "abcdefgh", "attr-pw", "attr-tok"},
		"serial": {"23456789012", "34567890123"}, "user": {"joe", "svc:", "u:"}, "host": {"acme.example"}, "ipv4": {"192.168.7.8"}, "ipv6": {"fd12:3456"},
		"mac": {"3C:EC:EF", "3C-EC-EF", "3CECEF", "3cecef", "3cec.ef", "a0b1c2d3e4f5"},
	}
	record := func(keep ...string) (*recording.Recorded, string) {
		s := serve(t, map[string]string{"/redfish/v1": telling, "/redfish/v1/Systems/3cecef0a0b0c": `{"@odata.id": "/redfish/v1/Systems/3cecef0a0b0c"}`})
		dir, o := filepath.Join(t.TempDir(), "acme"), s.options()
		o.Keep = keep
		recorded, err := recording.Record(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return recorded, fmt.Sprint(all(t, dir))
	}
	recorded, text := record()
	for kind, values := range secrets {
		for _, value := range values {
			if strings.Contains(text, value) {
				t.Errorf("it has the %s %s:\n%s", kind, value, text)
			}
		}
	}
	for _, kept := range []string{"Strict", `"TokenType": "None"`, "20", "2048", "SSD 480 GB", "2.1.3.4", "redfish.dmtf.org", "10:11:12Z", `"Uefi"`, "page=7", "/redfish/v1/Systems/020000000001", "NIC.020000000001", "0200.0000.0001", `"02:00:00:00:00:01": {`} {
		if !strings.Contains(text, kept) {
			t.Errorf("it lacks %s:\n%s", kept, text)
		}
	}
	var kinds []string
	for _, r := range recorded.Replaced {
		kinds = append(kinds, r.Kind)
		if r.Values == 0 || len(r.Where) == 0 {
			t.Errorf("it lists %+v", r)
		}
	}
	if got := strings.Join(kinds, " "); got != "mac ipv4 ipv6 secret serial host user" {
		t.Errorf("it lists %s", got)
	}
	for kind, values := range secrets {
		_, text := record(kind)
		for _, value := range values {
			if !strings.Contains(text, strings.TrimSuffix(value, ",")) {
				t.Errorf("with --keep %s it lacks %s:\n%s", kind, value, text)
			}
		}
	}
	o := serve(t, acme()).options()
	o.Keep = []string{"everything"}
	if _, err := recording.Record(t.Context(), t.TempDir(), o); !errors.Is(err, recording.ErrInput) || !strings.Contains(err.Error(), "the kinds are mac, uuid") {
		t.Errorf("an unknown kind: %v", err)
	}
}
