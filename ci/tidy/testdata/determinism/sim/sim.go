package sim

import (
	crand "crypto/rand"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func banned(names map[string]int, clock func() time.Time) {
	time.Sleep(time.Second)
	now := time.Now // a value is as bad as a call
	_ = now
	_ = metav1.Now()
	_ = rand.IntN(3)
	_ = crand.Text()
	go clock()
	for name := range names {
		println(name)
	}
	_ = slices.Collect(maps.Keys(names))
	// order does not matter:
	for range names { // without a reason it does
	}
	new(sync.WaitGroup).Go(func() {})
	for it := reflect.ValueOf(names).MapRange(); it.Next(); {
	}
}

type named map[int]bool

func alsoNamed(a named) {
	for range a {
	}
}

func allowed(names map[string]int, at time.Time) {
	stream := rand.New(rand.NewPCG(1, 2))
	_ = stream.IntN(3)
	_ = at.Add(time.Second).After(at)
	_ = metav1.NewTime(at)
	for name := range names { // order does not matter: deleting all
		delete(names, name)
	}
	// order does not matter: the sum of integers is the same in any order,
	// as everybody knows
	for _, n := range names {
		_ = n
	}
	for range slices.Sorted(maps.Keys(names)) {
	}
	for range []int{1, 2} {
	}
}
