package fencetest

import (
	"strings"
	"testing"
	"time"
)

func TestRecast(t *testing.T) {
	const scenario = `
spec:
  topology: {hosts: [{name: spare, off: true}]}
  controllers:
  - {name: reboot, settings: {pollInterval: 1s}}
  - {name: deletion, replicas: 2, settings: {pollInterval: 1s}}
  steps:
  - do: {crash: {controller: deletion-2, restartAfter: 1m}}
  - when: {event: controller-warning, actor: deletion, value: deletion}
  - do: {pauseController: {controller: deletion-controller}}
  expect: {events: [{never: {event: pod-terminating, actor: deletion}}]}
`
	got, err := recast([]byte(scenario), [][2]string{{"deletion", "theirs"}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(got)), " ")
	for _, want := range []string{"name: spare \"off\": true", "name: reboot settings", "name: theirs replicas: 2 ", "controller: theirs-2", "actor: theirs ", "actor: theirs event: pod-terminating", "value: deletion ", "controller: deletion-controller", "steps: - after: 1m0s "} {
		if !strings.Contains(text, want) {
			t.Errorf("the scenario lacks %q:\n%s", want, got)
		}
	}
	wrong := strings.Replace(scenario, "replicas: 2", "overlay: [{then: nothing}]", 1)
	if _, err := recast([]byte(wrong), [][2]string{{"deletion", "theirs"}}, 0); err == nil || !strings.Contains(err.Error(), "wrong on purpose") {
		t.Errorf("a scenario with a controller that is wrong on purpose gives %v", err)
	}
}
