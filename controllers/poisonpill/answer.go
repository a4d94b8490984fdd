package poisonpill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// question is an agent's question about itself to its peers.
type question struct {
	Node string `json:"node"`
	Boot string `json:"boot"`
}

func (q question) encode() []byte {
	data, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("encode a question: %v", err)) // texts always encode
	}
	return data
}

// answer is a peer's answer.
type answer struct {
	Reply Reply `json:"reply"`
}

// parseReply reads a reply. It takes anything else for silence.
func parseReply(said []byte) Reply {
	var a answer
	if json.Unmarshal(said, &a) == nil {
		switch a.Reply {
		case Healthy, Unhealthy, CutOff:
			return a.Reply
		}
	}
	return Silent
}

// errNothing reports that a peer gets no answer.
var errNothing = errors.New("this agent can't tell")

// Answer answers the agent on another Node's host about that host's boot. It looks at the API
// server first: what it read before the question proves nothing.
func (a *Agent) Answer(ctx context.Context, from string, request []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, fmt.Errorf("read the question of %s: %w", from, err)
	}
	if q.Node != from || q.Boot == "" {
		return nil, fmt.Errorf("answer %s: it may ask about a boot of its own, and not about %q of Node %q", from, q.Boot, q.Node)
	}
	a.mutex.Lock()
	state := State{About: OfQuestion, Looked: a.published.looked, Known: a.published.known[q.Node].Boot == q.Boot}
	a.mutex.Unlock()
	s, err := look(ctx, a.API, &a.readings)
	if state.Reached = err == nil; state.Reached {
		state.Fenced, state.Marked = s.fenced(q.Node, q.Boot), s.unanswered(q.Node, q.Boot)
	}
	switch a.Decide(state) {
	case SayHealthy:
		return json.Marshal(answer{Healthy})
	case SayUnhealthy:
		return json.Marshal(answer{Unhealthy})
	case SayCutOff:
		return json.Marshal(answer{CutOff})
	case RequestFence:
		if err := a.request(ctx, s, q.Node, q.Boot); err != nil {
			return nil, err
		}
		return json.Marshal(answer{Unhealthy})
	}
	return nil, errNothing
}
