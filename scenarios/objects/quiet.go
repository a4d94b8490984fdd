package objects

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
)

// Quiet is how long the controllers may be up to something without showing it:
// the longest time that any of their settings, or the health check, names.
func Quiet(spec *scenarios.Spec, chosen []controllers.Selection) time.Duration {
	var longest time.Duration
	if check := spec.HealthCheck; check != nil {
		longest = max(time.Duration(check.UnhealthyAfter), time.Duration(check.NodeStartupTimeout))
	}
	for _, c := range chosen {
		settings := reflect.Indirect(reflect.ValueOf(c.Settings))
		for i := range settings.NumField() {
			if d, ok := settings.Field(i).Interface().(metav1.Duration); ok {
				longest = max(longest, d.Duration)
			}
		}
	}
	return longest
}
