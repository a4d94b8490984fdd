package redfish_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
)

// manyHosts serves n hosts in memory, one listener each or all behind one, and
// returns the URL of each system.
func manyHosts(tb testing.TB, n int, shared bool) []string {
	tb.Helper()
	server, err := redfish.NewServer(redfish.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { server.Close() })
	clk := wall.Clock()
	var bmcs []*fakebmc.BMC
	for i := range n {
		bmcs = append(bmcs, fakebmc.New(fmt.Sprintf("node-%d", i), memory.New(clk, memory.Timing{}, true), clk))
	}
	var urls []string
	if shared {
		_, url, err := listen(server, ":0", bmcs...)
		if err != nil {
			tb.Fatal(err)
		}
		for _, b := range bmcs {
			urls = append(urls, url+"/redfish/v1/Systems/"+b.Host())
		}
		return urls
	}
	for _, b := range bmcs {
		url, err := server.Listen(":0", b)
		if err != nil {
			tb.Fatal(err)
		}
		urls = append(urls, url+"/redfish/v1/Systems/"+b.Host())
	}
	return urls
}

// plain serves the same bytes and headers from a net/http handler that does
// nothing else: what there is to reach.
func plain(tb testing.TB) []string {
	tb.Helper()
	url := manyHosts(tb, 1, true)[0]
	resp, err := http.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range resp.Header {
			w.Header()[name] = value
		}
		_, _ = w.Write(body)
	}))
	tb.Cleanup(s.Close)
	return []string{s.URL}
}

// BenchmarkPowerRead reads power states over kept-alive connections, as fast as
// 1 or 16 clients can.
func BenchmarkPowerRead(b *testing.B) {
	for _, service := range []struct {
		name string
		urls func(testing.TB) []string
	}{
		{"plain net/http", plain},
		{"1 host", func(tb testing.TB) []string { return manyHosts(tb, 1, false) }},
		{"1000 hosts on a listener", func(tb testing.TB) []string { return manyHosts(tb, 1000, true) }},
		{"1000 hosts with a listener each", func(tb testing.TB) []string { return manyHosts(tb, 1000, false) }},
	} {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d clients", service.name, clients), func(b *testing.B) {
				urls := service.urls(b)
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxIdleConns: 2 * len(urls) * clients}}
				defer client.CloseIdleConnections()
				took := make([]time.Duration, b.N)
				var next atomic.Int64
				var all sync.WaitGroup
				b.ResetTimer()
				for range clients {
					all.Go(func() {
						for n := next.Add(1) - 1; n < int64(b.N); n = next.Add(1) - 1 {
							took[n] = get(b, client, urls[int(n)%len(urls)])
						}
					})
				}
				all.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
				reportPercentile(b, took)
			})
		}
	}
}

// BenchmarkPowerReadAt2000 offers 2,000 reads a second to 1,000 hosts, whether or
// not they keep up: each latency counts from when the read was due.
func BenchmarkPowerReadAt2000(b *testing.B) {
	const rate, clients = 2000, 64
	for _, service := range []struct {
		name string
		urls func(testing.TB) []string
	}{
		{"plain net/http", plain},
		{"1000 hosts on a listener", func(tb testing.TB) []string { return manyHosts(tb, 1000, true) }},
	} {
		b.Run(service.name, func(b *testing.B) {
			urls := service.urls(b)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxIdleConns: clients * len(urls)}}
			defer client.CloseIdleConnections()
			for range clients { // connections are there before
				get(b, client, urls[0])
			}
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			begin := time.Now()
			for range clients {
				all.Go(func() {
					for n := next.Add(1) - 1; n < int64(b.N); n = next.Add(1) - 1 {
						due := begin.Add(time.Duration(n) * time.Second / rate)
						time.Sleep(time.Until(due))
						get(b, client, urls[int(n)%len(urls)])
						took[n] = time.Since(due)
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
			reportPercentile(b, took)
		})
	}
}

func get(b *testing.B, client *http.Client, url string) time.Duration {
	begin := time.Now()
	resp, err := client.Get(url)
	if err != nil {
		b.Error(err)
		return 0
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("%d, %v", resp.StatusCode, err)
	}
	return time.Since(begin)
}

func reportPercentile(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkMemory is the heap and the stacks that a host takes, served and idle.
func BenchmarkMemory(b *testing.B) {
	for _, shared := range []bool{true, false} {
		b.Run(fmt.Sprintf("1000 hosts, shared listener %v", shared), func(b *testing.B) {
			inUse := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapInuse + m.StackInuse
			}
			// Once for each call: the hosts are there until its end.
			before := inUse()
			urls := manyHosts(b, 1000, shared)
			b.ReportMetric(float64(inUse()-before)/1000/1024, "KiB/host")
			runtime.KeepAlive(urls)
		})
	}
}

// TestASilentConnectionBlocksNobody is where other emulators stand still: a TLS
// client that says nothing.
func TestASilentConnectionBlocksNobody(t *testing.T) {
	r := newRig(t, secured(t), "node-1")
	for range 10 {
		silent, err := net.Dial("tcp", strings.TrimPrefix(r.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	for i := range 10 {
		if got := r.do("GET", systemURL, ""); got.status != 200 {
			t.Errorf("read %s: %d", strconv.Itoa(i), got.status)
		}
	}
}
