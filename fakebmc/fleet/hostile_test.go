package fleet

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	hostile     = flag.Duration("hostile", 2*time.Second, "how long each kind of hostile client goes on")
	connections = flag.Int("connections", 300, "how many connections each kind of hostile client keeps open")
	slower      = flag.Float64("slower", 0, "by how much the 99th percentile of a normal client's reads may grow; 0 is not judged")
)

const servesHostile = "FENCELAB_TEST_SERVES_HOSTILE"

// TestMain lets the test binary be the process that is attacked.
func TestMain(m *testing.M) {
	if os.Getenv(servesHostile) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // it ends with whoever started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var all sync.WaitGroup
	for _, secure := range []bool{false, true} {
		o := Options{Fake: 1, TLS: secure, Username: "admin", Password: "s3cret", Listen: ":0", Ready: os.Stdout}
		if !secure {
			o.IPMI, o.Admin = ":0", ":0"
		}
		all.Go(func() {
			if err := Run(ctx, o); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
	all.Wait()
}

// attacked is a process that serves a host over HTTP, HTTPS and IPMI.
type attacked struct {
	t                         *testing.T
	pid                       int
	plain, secure, admin, udp string // addresses
	system                    string // its path
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), servesHostile+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	a := &attacked{t: t, pid: cmd.Process.Pid}
	for lines := bufio.NewScanner(out); (a.plain == "" || a.secure == "" || a.admin == "") && lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			continue
		}
		if url, ok := strings.CutPrefix(f[1], "https://"); ok {
			a.secure, _, _ = strings.Cut(url, "/")
		} else if url, ok := strings.CutPrefix(f[1], "http://"); ok && f[0] == "(admin)" {
			a.admin, _, _ = strings.Cut(url, "/")
		} else if ok {
			var path string
			a.plain, path, _ = strings.Cut(url, "/")
			a.system, a.udp = "/"+path, f[2]
		}
	}
	if a.plain == "" || a.secure == "" {
		t.Fatal("the process that is to be attacked serves nothing")
	}
	return a
}

// descriptors and memory (resident, in MiB) are those of the process.
func (a *attacked) descriptors() int {
	a.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.pid))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(files)
}

func (a *attacked) memory() int {
	a.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.pid))
	if err != nil {
		a.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		a.t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

// reads has a normal client read the power state until ctx ends, with and without a
// connection of before, and returns the 99th percentile. Every read has to succeed.
func (a *attacked) reads(ctx context.Context) (n int, p99 time.Duration) {
	a.t.Helper()
	clients := []*http.Client{
		{Transport: &http.Transport{}, Timeout: 30 * time.Second},
		{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second},
	}
	defer clients[0].CloseIdleConnections()
	var took []time.Duration
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		begin := time.Now()
		req, err := http.NewRequest("GET", "http://"+a.plain+a.system, nil)
		if err != nil {
			a.t.Fatal(err)
		}
		req.SetBasicAuth("admin", "s3cret")
		resp, err := clients[len(took)%2].Do(req)
		if err != nil {
			a.t.Fatalf("read %d: %v", len(took), err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			a.t.Fatalf("read %d: %d, %v", len(took), resp.StatusCode, err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return len(took), took[len(took)*99/100]
}

// openSession is an RMCP+ Open Session Request.
var openSession = []byte{
	6, 0, 0xff, 7, 6, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0,
	1, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 8, 1, 0, 0, 0, 1, 0, 0, 8, 1, 0, 0, 0, 2, 0, 0, 8, 1, 0, 0, 0,
}

// TestHostileClients has each kind of hostile client keep connections open, and open new
// ones for those that it loses, while a normal client at the same address reads. "make
// hostile" does so for a minute with 1,000 connections each.
func TestHostileClients(t *testing.T) {
	a := newAttacked(t)
	get := "GET " + a.system + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic YWRtaW46czNjcmV0\r\n\r\n"
	login := "POST /redfish/v1/SessionService/Sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	for _, kind := range []struct{ name, network, address, sends string }{
		{"half a body", "tcp", a.plain, login},
		{"half a body to the admin API", "tcp", a.admin, strings.Replace(login, "/redfish/v1/SessionService/Sessions", "/v1/hosts/*/rules", 1)},
		{"half a header", "tcp", a.plain, "GET / HTTP/1.1\r\nHost: 127"},
		{"half a handshake", "tcp", a.secure, "\x16\x03\x01\x02\x00\x01"},
		{"a silent reader", "tcp", a.plain, strings.Repeat(get, 20)},
		{"an open IPMI session", "udp", a.udp, string(openSession)},
	} {
		t.Run(kind.name, func(t *testing.T) {
			a.t = t
			fds, memory := a.descriptors(), a.memory()
			calm, end := context.WithTimeout(t.Context(), *hostile)
			before, p99Before := a.reads(calm)
			end()
			attack, end := context.WithTimeout(t.Context(), *hostile)
			defer end()
			var attackers sync.WaitGroup
			for range *connections {
				attackers.Go(func() { keepOpen(attack, kind.network, kind.address, kind.sends) })
			}
			n, p99 := a.reads(attack)
			held, grown := a.descriptors(), a.memory()
			end()
			attackers.Wait()
			back := a.descriptors()
			for limit := time.Now().Add(30 * time.Second); back > fds+2 && time.Now().Before(limit); back = a.descriptors() {
				time.Sleep(100 * time.Millisecond)
			}
			t.Logf("reads %d, then %d; p99 %v, then %v; descriptors %d, %d, %d; memory %d, %d, %d MiB",
				before, n, p99Before.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), fds, held, back, memory, grown, a.memory())
			if back > fds+2 {
				t.Errorf("%d descriptors are left of %d", back, held)
			}
			if after := a.memory(); after > memory+128 {
				t.Errorf("%d MiB are left, %d before", after, memory)
			}
			if *slower > 0 && float64(p99) > *slower*float64(p99Before) {
				t.Errorf("p99 %v, %v before", p99, p99Before)
			}
		})
	}
	a.t = t
	// The service is as it was, over HTTPS too.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 30 * time.Second}
	resp, err := client.Get("https://" + a.secure + "/redfish/v1/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var root map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&root); err != nil || root["Id"] != "RootService" {
		t.Errorf("%v %v", err, root)
	}
}

// keepOpen has a connection on which it sends something and waits, and another one when
// that is gone.
func keepOpen(ctx context.Context, network, address, sends string) {
	for ctx.Err() == nil {
		if conn, err := (&net.Dialer{}).DialContext(ctx, network, address); err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(1) // the least that there is
			}
			_, _ = io.WriteString(conn, sends)
			if network == "udp" {
				sleep(ctx, time.Second)
			} else if strings.Count(sends, "\r\n\r\n") > 1 { // it doesn't read
				sleep(ctx, 15*time.Second)
			} else {
				_, _ = io.Copy(io.Discard, conn)
			}
			stop()
			conn.Close()
		}
		sleep(ctx, time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
