package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// tell calls a listener with the objects of a list or a watch as they reach the caller.
func tell(request *http.Request, response *http.Response, listener Listener, asked Request) error {
	if asked.Verb == "" {
		response.ContentLength = -1
		response.Header.Del("Content-Length")
		response.Body = &watched{
			ctx: request.Context(), source: response.Body, events: json.NewDecoder(response.Body), listener: listener, asked: asked,
			beginning: request.URL.Query().Get("sendInitialEvents") == "true",
		}
		return nil
	}
	if asked.Verb != "list" {
		return nil // a live read is no delivery
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	list := asked.Watches.NewList()
	if err := json.Unmarshal(body, list); err != nil {
		return fmt.Errorf("read a list of %s: %w", asked.Kind, err)
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := range items.Len() {
		if object, ok := items.Index(i).Addr().Interface().(metav1.Object); ok {
			if err := listener.Told(request.Context(), asked, Change{Listed: true, Object: object}); err != nil {
				return err
			}
		}
	}
	return nil
}

// watched is a watch that calls its listener with each event before its caller gets it. It passes
// an event on as it came.
type watched struct {
	ctx      context.Context
	source   io.ReadCloser
	events   *json.Decoder
	listener Listener
	asked    Request
	// beginning says that the events so far are of objects that existed when the watch began.
	beginning bool
	ready     []byte
	err       error
}

func (w *watched) Read(p []byte) (int, error) {
	for len(w.ready) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.next()
	}
	n := copy(p, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

// next waits for an event, and for the listener.
func (w *watched) next() {
	var raw json.RawMessage
	if w.err = w.events.Decode(&raw); w.err != nil {
		return
	}
	if refusal, err := w.tell(raw); err != nil {
		w.err = err
		if refusal != nil {
			w.ready, w.err = refusal, io.EOF
		}
		return
	}
	w.ready = append(raw, '\n')
}

// tell returns an error if the event must not be passed on, and the event to pass on in its place,
// if there is one.
func (w *watched) tell(raw []byte) (instead []byte, err error) {
	var event struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := json.Unmarshal(raw, &event); err != nil {
		return nil, fmt.Errorf("read a watch of %s: %w", w.asked.Kind, err)
	}
	object := w.asked.Watches.New()
	switch event.Type {
	case watch.Bookmark:
		if err := json.Unmarshal(event.Object, object); err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			w.beginning = false
		}
		return nil, nil
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return nil, nil
	}
	if err := json.Unmarshal(event.Object, object); err != nil {
		return nil, fmt.Errorf("read a watch of %s: %w", w.asked.Kind, err)
	}
	err = w.listener.Told(w.ctx, w.asked, Change{Listed: w.beginning, Object: object, Deleted: event.Type == watch.Deleted})
	if refusal, refused := err.(*Refusal); refused {
		return refusal.event(), err
	}
	return nil, err
}

func (w *watched) Close() error { return w.source.Close() }
