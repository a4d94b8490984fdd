package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections lie in memory, so that their time is the test's.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.conns); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// TestUnfinishedRequestsAreCutOff: whatever a client leaves unfinished, its connection
// ends when the time for it is over, and so does that of one that doesn't read.
func TestUnfinishedRequestsAreCutOff(t *testing.T) {
	post := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
	for _, c := range []struct {
		name, sends string
		every       time.Duration // then a byte each
		status      string
	}{
		{"nothing", "", 0, ""},
		{"half a header", "POST / HTTP/1.1\r\nHos", 0, ""},
		{"a header by the byte", "POST / HTTP/1.1\r\nHost: ", 5 * time.Second, ""},
		{"half a body", post + "{", 0, "408"},
		{"a body by the byte", post, 5 * time.Second, "408"},
		{"half a body of a GET", strings.Replace(post, "POST", "GET", 1), 0, "408"},
		{"half a chunk", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx", 0, "408"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := ReadBody(w, r); errors.Is(err, os.ErrDeadlineExceeded) {
						w.WriteHeader(http.StatusRequestTimeout)
					}
				}))
				l := pipes{make(chan net.Conn)}
				go server.Serve(NewGate().Listener(l))
				defer server.Close()
				conn := l.dial()
				begin := time.Now()
				go func() {
					fmt.Fprint(conn, c.sends)
					for c.every > 0 {
						time.Sleep(c.every)
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
					}
				}()
				answer, _ := io.ReadAll(conn)
				if took := time.Since(begin); took > Timeout+time.Second {
					t.Errorf("cut off after %v", took)
				}
				if status := strings.TrimPrefix(string(answer), "HTTP/1.1 "); !strings.HasPrefix(status, c.status) {
					t.Errorf("answered %q, want %s", answer, c.status)
				}
				conn.Close()
				time.Sleep(c.every) // until the writer knows
				synctest.Wait()
			})
		})
	}
}

// TestTwoLengths: after a request whose end is a matter of opinion there is no other one.
func TestTwoLengths(t *testing.T) {
	server := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := ReadBody(w, r); err != nil {
			t.Error(err)
		}
	}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(NewGate().Listener(ln))
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answers, _ := io.ReadAll(bufio.NewReader(conn))
	if n := strings.Count(string(answers), "HTTP/1.1 200"); n != 1 {
		t.Errorf("%d answers: %s", n, answers)
	}
}

func TestIsLocal(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:80": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:80": true, "localhost": true, "LOCALHOST:80": true,
		"": false, "evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example:80": false, "192.0.2.1": false, "2130706433": false, "0x7f.1": false,
	} {
		if got := IsLocal(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
