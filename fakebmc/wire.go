package fakebmc

// Wire is what a request brings along that comes over a protocol with headers and
// sessions: what only the protocol knows about it, and how to answer it. A direct
// call, as the simulator's, has none; IPMI has one for what only IPMI knows.
type Wire interface {
	// Traits are what selectors and effects look at.
	Traits() Traits
	// Execute is called once, when the request is to be executed, with the effects
	// of the rules that fired on it. done is false for what the BMC executes itself.
	Execute(Effects) (a Answer, done bool)
	// Reply takes the answer. Like the reply of Do it is called once or never.
	Reply(Answer, Effects)
}

// Traits are what rules may look at of a request over a Wire.
type Traits struct {
	// Own says that the request is the protocol's own business, also if that is to
	// refuse it: then it is neither a read nor a reset.
	Own   bool
	Login bool   // it opens a session
	Media bool   // it puts an image into a drive, or takes one out
	Auth  string // how the client has authenticated: AuthBasic, AuthSession or "", not at all
	// Header returns the value of a header, or ""; nil where there are none.
	Header func(name string) string
	// Body returns the value of a property of what the request says, a string as it is and anything
	// else as JSON; nil where there are no bodies.
	Body func(property string) (value string, ok bool)
}

// The ways to authenticate that Effect.Auth can leave.
const (
	AuthBasic   = "basic"
	AuthSession = "session"
)

// caller is who waits for an answer: a Wire, or a direct call's reply.
type caller struct {
	wire  Wire
	reply func(Answer)
}

func (c caller) answer(a Answer, e Effects) {
	if c.wire != nil {
		c.wire.Reply(a, e)
		return
	}
	c.reply(a)
}

// wired reports whether the traits belong to a request over a Wire, not to a direct call.
func (t Traits) wired() bool { return t.Header != nil }

func (c caller) traits() Traits {
	if c.wire == nil {
		return Traits{}
	}
	return c.wire.Traits()
}
