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
	// An event that can't be delivered is tried so often, and again so long later, before the
	// subscription ends.
	deliveryAttempts = 3
	deliveryInterval = time.Second
	// deliveryTimeout bounds one attempt.
	deliveryTimeout = 10 * time.Second
)

// subscriptions are the destinations to which a service pushes the power events of its hosts
// (DSP0266, event destinations). They outlive a restart of a BMC, which loses what happens
// meanwhile, unless it forgets.
type subscriptions struct {
	allowed []*url.URL // where destinations may be; there are no subscriptions without
	run     func(func())
	hooked  sync.Once // the BMC whose memory they are in

	mu   sync.Mutex
	last int
	all  []*subscription // in the order of their Ids
}

// subscription is one destination, until its context ends: it is deleted, or the service closes.
type subscription struct {
	id     string
	asked  subscribing
	header http.Header
	events chan powerEvent // what its BMCs still have to send
	outbox chan []byte     // and what they have sent
	ctx    context.Context
	cancel context.CancelFunc
}

// subscribing is what a client says of its destination.
type subscribing struct {
	Destination, Context, Protocol, EventFormatType, SubscriptionType, DeliveryRetryPolicy, Name *string
	// A list that has something in it selects events.
	EventTypes, RegistryPrefixes, ResourceTypes, MessageIds []string
	OriginResources                                         []struct {
		ID string `json:"@odata.id"`
	}
	SubordinateResources, VerifyCertificate *bool
	HttpHeaders                             any // one object, or a list of them
}

// eventTypes has the types of Redfish's schema (DSP0268, Event).
var eventTypes = []string{"StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert", "MetricReport", "Other"}

// What becomes of a subscription when an event of it can't be delivered.
const (
	retryTerminates = "TerminateAfterRetries"
	retryForever    = "RetryForever"
)

// schemaOf is the schema of a type.
func schemaOf(typ string) string { return typ[1:strings.IndexByte(typ, '.')] }

// messageKey is a message's registry and key, without the registry's version.
func messageKey(id string) string {
	prefix, rest, _ := strings.Cut(id, ".")
	return prefix + "." + rest[strings.LastIndexByte(rest, '.')+1:]
}

// unserved is the first property by which a client selects events that the service never sends,
// with its value.
func (in *subscribing) unserved() (value, property string, found bool) {
	schemas, prefixes, keys := []string{}, []string{}, []string{}
	for _, typ := range types {
		schemas = append(schemas, schemaOf(typ))
	}
	for _, r := range registries {
		prefixes = append(prefixes, r.id)
	}
	for _, key := range powerMessages { // order does not matter: a set
		keys = append(keys, messageKey(eventRegistry+key))
	}
	for _, list := range []struct {
		property     string
		given, known []string
		key          func(string) string
	}{
		{"EventTypes", in.EventTypes, eventTypes, strings.Clone}, {"RegistryPrefixes", in.RegistryPrefixes, prefixes, strings.Clone},
		{"ResourceTypes", in.ResourceTypes, schemas, strings.Clone}, {"MessageIds", in.MessageIds, keys, messageKey},
	} {
		for _, value := range list.given {
			if !slices.Contains(list.known, list.key(value)) {
				return value, list.property, true
			}
		}
	}
	return "", "", false
}

// selects reports whether an event is among those that the client wants.
func (in *subscribing) selects(e powerEvent) bool {
	has := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	message := messageKey(eventRegistry + powerMessages[e.state])
	origin := len(in.OriginResources) == 0
	for _, o := range in.OriginResources {
		at := place(o.ID)
		below := in.SubordinateResources != nil && *in.SubordinateResources && strings.HasPrefix(e.bmc.SystemPath(), at+"/")
		origin = origin || at == e.bmc.SystemPath() || below
	}
	return origin && has(in.EventTypes, powerEventType) && has(in.RegistryPrefixes, eventPrefix) && has(in.ResourceTypes, schemaOf(systemType)) &&
		(len(in.MessageIds) == 0 || slices.ContainsFunc(in.MessageIds, func(id string) bool { return messageKey(id) == message }))
}

// subscriptionsEndpoint is where clients subscribe.
func (s *service) subscriptionsEndpoint(e *endpoint) {
	e.get = shows(func() object {
		return collection(subscriptionsPath, "EventDestinationCollection", "Event Subscriptions", s.subscriptions.ids()...)
	})
	e.post = func(_ fakebmc.Effects, body []byte) response { return s.subscribe(body) }
}

func text(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func (s *service) subscribe(body []byte) response {
	var in subscribing
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	if value, property, found := in.unserved(); found {
		return notInList(value, property)
	}
	for _, origin := range in.OriginResources {
		if e := s.resolver()(place(origin.ID)); len(e.allow()) == 0 {
			return refusal(http.StatusBadRequest, fakebmc.MsgMissingAtURI, nil, origin.ID)
		}
	}
	switch policy := text(in.DeliveryRetryPolicy, retryTerminates); {
	case policy != retryTerminates && policy != retryForever:
		return notInList(policy, "DeliveryRetryPolicy")
	case in.Destination == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "Destination")
	case text(in.Protocol, "Redfish") != "Redfish":
		return notInList(*in.Protocol, "Protocol")
	case text(in.EventFormatType, "Event") != "Event":
		return notInList(*in.EventFormatType, "EventFormatType")
	case text(in.SubscriptionType, "RedfishEvent") != "RedfishEvent":
		return notInList(*in.SubscriptionType, "SubscriptionType")
	case !slices.ContainsFunc(s.subscriptions.allowed, func(base *url.URL) bool { return lies(strings.TrimSuffix(*in.Destination, "/"), base) }):
		return refusal(http.StatusForbidden, msgAccessDenied, nil, *in.Destination)
	}
	header, ok := headersIn(in.HttpHeaders)
	if !ok {
		return refusal(http.StatusBadRequest, msgPropertyType, nil, "the value given", "HttpHeaders")
	}
	all := s.subscriptions
	all.hooked.Do(func() { s.common.Hook(fakebmc.Hooks{Forget: func(bool) { all.forget() }}) })
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
	all.run(func() { sub.deliver(all) })
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
	r["DeliveryRetryPolicy"] = text(s.asked.DeliveryRetryPolicy, retryTerminates)
	r["VerifyCertificate"] = s.verifies()
	r["SubordinateResources"] = s.asked.SubordinateResources != nil && *s.asked.SubordinateResources
	for property, list := range map[string][]string{
		"EventTypes": s.asked.EventTypes, "RegistryPrefixes": s.asked.RegistryPrefixes, "ResourceTypes": s.asked.ResourceTypes, "MessageIds": s.asked.MessageIds,
	} {
		if r[property] = list; list == nil {
			r[property] = []string{}
		}
	}
	origins := []object{}
	for _, o := range s.asked.OriginResources {
		origins = append(origins, link(o.ID))
	}
	r["OriginResources"] = origins
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

// verifies reports whether the destination has to prove who it is, which isn't asked of it unless
// the client says so (DSP0268, VerifyCertificate).
func (s *subscription) verifies() bool {
	return s.asked.VerifyCertificate != nil && *s.asked.VerifyCertificate
}

// forget ends all.
func (all *subscriptions) forget() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.all {
		s.cancel()
	}
	all.all = nil
}

// hear takes an edge, if it is one that the client wants. What the destination is too slow for is
// lost.
func (s *subscription) hear(e powerEvent) {
	if !s.asked.selects(e) {
		return
	}
	select {
	case s.events <- e:
	default:
	}
}

// push has the BMCs send a destination their hosts' edges, those that are watched and those that
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

// deliver sends events one after the other, until the subscription is over. One that isn't taken is
// sent again for ever, or ends the subscription, as its policy says.
func (s *subscription) deliver(all *subscriptions) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: !s.verifies()}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: deliveryTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for {
		select {
		case data := <-s.outbox:
			for attempt := 1; !s.send(client, data); attempt++ {
				if attempt == deliveryAttempts && text(s.asked.DeliveryRetryPolicy, retryTerminates) == retryTerminates {
					all.end(s)
					return
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
