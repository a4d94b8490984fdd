package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencelab/fencelab/cmd/oncluster"
	"github.com/fencelab/fencelab/front"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// metrics show Prometheus how far a campaign has come, as whoever plays or follows it sees it.
type metrics struct {
	registry *prometheus.Registry

	schedules, shards, pods *prometheus.GaugeVec
	findings, answers       prometheus.Gauge
}

func newMetrics(campaign string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	in := prometheus.WrapRegistererWith(prometheus.Labels{"campaign": campaign}, m.registry)
	by := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fencelab_campaign_" + name, Help: help}, []string{"state"})
		in.MustRegister(v)
		return v
	}
	one := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fencelab_campaign_" + name, Help: help})
		in.MustRegister(g)
		return g
	}
	m.schedules = by("schedules", "Schedules that are planned, were played, and did not hold.")
	m.shards = by("shards", "Shards that are planned, and whose blobs are whole.")
	m.pods = by("pods", "Pods that failed, and whose index was tried again or given up.")
	m.findings = one("findings", "Different findings, as far as they are known.")
	m.answers = one("answers", "1 if whoever is followed has answered the last question.")
	return m
}

// of sets what states come to.
func of(v *prometheus.GaugeVec, states map[string]int) {
	for state, n := range states { // order does not matter
		v.WithLabelValues(state).Set(float64(n))
	}
}

// played notes schedules that this process has had played. Without metrics it does nothing.
func (m *metrics) played(all, tried, failed int) {
	if m != nil {
		m.answers.Set(1)
		of(m.schedules, map[string]int{"planned": all, "played": tried, "failed": failed})
	}
}

// followed notes what a Job has come to; the state is nil if the cluster didn't answer.
func (m *metrics) followed(s *oncluster.State, summaries map[int]oncluster.Summary) {
	if m == nil {
		return
	}
	m.answers.Set(0)
	if s == nil {
		return
	}
	m.answers.Set(1)
	played, failed, keys := 0, 0, make(map[string]bool)
	for _, summary := range summaries { // order does not matter
		played, failed = played+summary.Schedules, failed+summary.Failed
		for _, key := range summary.Findings {
			keys[key] = true
		}
	}
	of(m.schedules, map[string]int{"played": played, "failed": failed})
	of(m.shards, map[string]int{"planned": s.Of, "whole": s.Done})
	of(m.pods, map[string]int{"failed": s.Failed})
	m.findings.Set(float64(len(keys)))
}

// serve serves the metrics of a campaign until the context ends, if that is wanted. The error has
// an exit code.
func (c *campaigner) serve(ctx context.Context, campaign string) error {
	if c.listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.listen)
	if err != nil {
		return exit.BadInput(fmt.Errorf("--metrics %s: write an address such as 127.0.0.1:9090, or :9090 for this machine alone", c.listen))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return exit.Coded(exit.Environment, fmt.Errorf("--metrics %s: %w", c.listen, err))
	}
	c.metrics = newMetrics(campaign)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.metrics.registry, promhttp.HandlerOpts{}))
	server := front.Serve(mux)
	context.AfterFunc(ctx, func() { _ = server.Close() }) // whoever asks then asks in vain
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.Say("metrics: %v\n", err)
		}
	}()
	c.Say("metrics: http://%s/metrics\n", listener.Addr())
	return nil
}
