package vms

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// readArchive is an independent reader of the newc format, as strict as the kernel's.
func readArchive(b []byte) (entries []string, rest []byte, err error) {
	for offset := 0; ; {
		const header = 6 + 13*8
		if len(b)-offset < header || string(b[offset:offset+6]) != "070701" {
			return nil, nil, fmt.Errorf("no header at %d", offset)
		}
		var field [13]int
		for i := range field {
			n, err := strconv.ParseUint(string(b[offset+6+8*i:offset+14+8*i]), 16, 32)
			if err != nil {
				return nil, nil, err
			}
			field[i] = int(n)
		}
		mode, size, major, minor, nameSize := field[1], field[6], field[9], field[10], field[11]
		name := b[offset+header : offset+header+nameSize]
		if name[nameSize-1] != 0 {
			return nil, nil, fmt.Errorf("name %q doesn't end", name)
		}
		offset = (offset + header + nameSize + 3) &^ 3
		content := b[offset : offset+size]
		offset = (offset + size + 3) &^ 3
		if string(name[:nameSize-1]) == "TRAILER!!!" {
			return entries, b[offset:], nil
		}
		entries = append(entries, fmt.Sprintf("%s %06o %d:%d %s", name[:nameSize-1], mode, major, minor, content))
	}
}

func TestArchive(t *testing.T) {
	var b bytes.Buffer
	first := archive{w: &b}
	first.directory("dev")
	first.charDevice("dev/console", 5, 1)
	var want []string
	want = append(want, "dev 040755 0:0 ", "dev/console 020600 5:1 ")
	// Every alignment of name and content.
	for n := range 9 {
		name, content := strings.Repeat("n", n+1), strings.Repeat("c", n)
		first.file(name, 0o755, []byte(content))
		want = append(want, fmt.Sprintf("%s 100755 0:0 %s", name, content))
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second := archive{w: &b}
	second.file("config.json", 0o600, []byte("{}"))
	if err := second.close(); err != nil {
		t.Fatal(err)
	}
	got, rest, err := readArchive(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got, rest, err = readArchive(rest)
	if err != nil || len(got) != 1 || got[0] != "config.json 100600 0:0 {}" || len(rest) != 0 {
		t.Errorf("second archive: %q, rest %q, %v", got, rest, err)
	}
}

type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestArchiveReportsWriteErrors(t *testing.T) {
	for _, room := range []int{0, 110, 200} {
		a := archive{w: &fullDisk{room}}
		a.file("init", 0o755, make([]byte, 100))
		if err := a.close(); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}
