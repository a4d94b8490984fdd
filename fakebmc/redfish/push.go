package redfish

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

const (
	// maxSubscriptions is how many a service has at a time.
	maxSubscriptions = 16
	// An event that can't be delivered is tried again so often, and so long later; then it is lost.
	deliveryAttempts = 3
	deliveryInterval = time.Second
	// deliveryTimeout bounds one attempt.
	deliveryTimeout = 10 * time.Second
)

// subscriptions are the destinations to which a service pushes the power events of its hosts
// (DSP0266, event destinations). They outlive a restart of a BMC, which loses what happens
// meanwhile.
type subscriptions struct {
	allowed []*url.URL // where destinations may be; there are no subscriptions without
	run     func(func())

	mu   sync.Mutex
	last int
	all  []*subscription // in the order of their Ids
}

// subscription is one destination, until its context ends: it is deleted, or the service closes.
type subscription struct {
	id     string
	asked  subscribing
	header http.Header
	events chan powerEvent // what its BMCs still have to tell
	outbox chan []byte     // and what they have told
	ctx    context.Context
	cancel context.CancelFunc
}

// subscribing is what a client says of its destination.
type subscribing struct {
	Destination, Context, Protocol, EventFormatType, SubscriptionType, DeliveryRetryPolicy, Name *string
	EventTypes, RegistryPrefixes, ResourceTypes                                                  []string
	HttpHeaders                                                                                  any // one object, or a list of them
}

func text(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func (s *service) subscribe(body []byte) response {
	var in subscribing
	if a, ok := parse(body, &in); !ok {
		return a
	}
	switch {
	case in.Destination == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "Destination")
	case text(in.Protocol, "Redfish") != "Redfish":
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, *in.Protocol, "Protocol")
	case text(in.EventFormatType, "Event") != "Event":
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, *in.EventFormatType, "EventFormatType")
	case text(in.SubscriptionType, "RedfishEvent") != "RedfishEvent":
		return refusal(http.StatusBadRequest, msgPropertyNotInList, nil, *in.SubscriptionType, "SubscriptionType")
	case !slices.ContainsFunc(s.subscriptions.allowed, func(base *url.URL) bool { return lies(strings.TrimSuffix(*in.Destination, "/"), base) }):
		return refusal(http.StatusForbidden, msgAccessDenied, nil, *in.Destination)
	}
	header, ok := headersIn(in.HttpHeaders)
	if !ok {
		return refusal(http.StatusBadRequest, msgPropertyType, nil, "the value given", "HttpHeaders")
	}
	all := s.subscriptions
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.all) >= maxSubscriptions {
		return refusal(http.StatusServiceUnavailable, msgEventsExceeded, nil)
	}
	all.last++
	sub := &subscription{id: strconv.Itoa(all.last), asked: in, header: header, events: make(chan powerEvent, maxUnsent), outbox: make(chan []byte, maxUnsent)}
	sub.ctx, sub.cancel = context.WithCancel(context.Background())
	all.all = append(all.all, sub)
	changed, stop := s.watch(sub.hear) // before the answer, lest the next edge is missed
	all.run(func() { s.push(sub, changed, stop) })
	all.run(sub.deliver)
	return response{fakebmc.Answer{Status: http.StatusCreated}, &content{body: sub.resource(), header: http.Header{"Location": {subscriptionsPath + "/" + sub.id}}}}
}

// headersIn are the headers that events come with.
func headersIn(given any) (http.Header, bool) {
	h := make(http.Header)
	objects, ok := given.([]any)
	if !ok && given != nil {
		objects = []any{given}
	}
	for _, o := range objects {
		fields, ok := o.(map[string]any)
		if !ok {
			return nil, false
		}
		for name, value := range fields { // order does not matter: into a map
			text, ok := value.(string)
			if !ok {
				return nil, false
			}
			h.Set(name, text)
		}
	}
	return h, true
}

func (all *subscriptions) find(id string) *subscription {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.all, func(s *subscription) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return all.all[i]
}

func (all *subscriptions) ids() (ids []string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.all {
		ids = append(ids, s.id)
	}
	return ids
}

// end deletes one, and reports false if somebody else has.
func (all *subscriptions) end(sub *subscription) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.Index(all.all, sub)
	if i < 0 {
		return false
	}
	all.all = slices.Delete(all.all, i, i+1)
	sub.cancel()
	return true
}

// resource hides what may be a secret: the values of headers.
func (s *subscription) resource() object {
	r := resource(subscriptionsPath+"/"+s.id, destinationType, s.id, text(s.asked.Name, "Event Destination "+s.id))
	r["Destination"] = *s.asked.Destination
	r["Context"] = text(s.asked.Context, "")
	r["Protocol"], r["EventFormatType"], r["SubscriptionType"] = "Redfish", "Event", "RedfishEvent"
	r["DeliveryRetryPolicy"] = "TerminateAfterRetries"
	r["HttpHeaders"] = []object{}
	r["Status"] = healthy()
	return r
}

// subscription finds one, or nothing.
func (s *service) subscription(id string, e *endpoint) {
	sub := s.subscriptions.find(id)
	if sub == nil {
		return
	}
	e.get = shows(sub.resource)
	e.delete = func() response {
		if !s.subscriptions.end(sub) {
			return refusal(http.StatusNotFound, fakebmc.MsgMissingAtURI, nil, subscriptionsPath+"/"+id)
		}
		return done()
	}
}

// hear takes an edge. What the destination is too slow for is lost.
func (s *subscription) hear(e powerEvent) {
	select {
	case s.events <- e:
	default:
	}
}

// push has the BMCs tell a destination of their hosts' edges, those that are watched and those that
// come, until it is over.
func (s *service) push(sub *subscription, changed <-chan struct{}, stop func()) {
	defer func() { stop() }()
	for n := 1; ; {
		select {
		case e := <-sub.events:
			o := e.resource(n)
			n++
			o["Context"] = text(sub.asked.Context, "")
			e.bmc.Tell(subscriptionsPath+"/"+sub.id, told{sub, marshal(o)})
		case <-changed:
			stop()
			changed, stop = s.watch(sub.hear)
		case <-s.closing:
			sub.cancel()
			return
		case <-sub.ctx.Done():
			return
		}
	}
}

// told is an event on its way through the rules of its BMC. It implements fakebmc.Wire.
type told struct {
	to   *subscription
	data []byte
}

// Traits implements fakebmc.Wire.
func (told) Traits() fakebmc.Traits { return fakebmc.Traits{Own: true} }

// Execute implements fakebmc.Wire.
func (t told) Execute(fakebmc.Effects) (fakebmc.Answer, bool) {
	select {
	case t.to.outbox <- t.data:
		return fakebmc.Answer{Status: http.StatusNoContent}, true
	default:
		return fakebmc.Refuse(http.StatusServiceUnavailable, msgUnavailable, nil), true
	}
}

// Reply implements fakebmc.Wire.
func (told) Reply(fakebmc.Answer, fakebmc.Effects) {}

// deliver sends events one after the other, until the subscription is over. Certificates aren't
// verified, which is what an EventDestination does unless it is told otherwise (DSP0268,
// VerifyCertificate).
func (s *subscription) deliver() {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: deliveryTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for {
		select {
		case data := <-s.outbox:
			for range deliveryAttempts {
				if s.send(client, data) {
					break
				}
				select {
				case <-s.ctx.Done():
					return
				case <-time.After(deliveryInterval):
				}
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// send reports whether the destination has taken an event.
func (s *subscription) send(client *http.Client, data []byte) bool {
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, *s.asked.Destination, bytes.NewReader(data))
	if err != nil {
		return false
	}
	request.Header = s.header.Clone()
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode < 300
}
