package vms

import "sync"

// queue is a first-in-first-out queue without a bound: neither libvirt's event loop nor a guest may
// ever wait for a slow reader, and no event may be dropped.
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	wake   chan struct{} // holds a token while items or closed have news
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	q.signal()
}

func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all items, and whether the queue is closed.
func (q *queue[T]) take() ([]T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items, q.closed
}

// pump hands everything over and closes out after the last item, or at once when stop is closed.
func (q *queue[T]) pump(out chan<- T, stop <-chan struct{}) {
	defer close(out)
	for range q.wake {
		items, closed := q.take()
		for _, item := range items {
			select {
			case out <- item:
			case <-stop:
				return
			}
		}
		if closed {
			return
		}
	}
}
