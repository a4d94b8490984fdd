package fakebmc

import (
	"errors"
	"fmt"
	"time"
)

// The methods and statuses of HTTP that requests about power have, by whatever
// protocol they come.
const (
	methodGet   = "GET"
	methodHead  = "HEAD"
	methodPost  = "POST"
	methodPatch = "PATCH"

	statusOK          = 200
	statusAccepted    = 202
	statusNoContent   = 204
	statusBadRequest  = 400
	statusNotFound    = 404
	statusConflict    = 409
	statusServerError = 500
)

// Registry is the version of DMTF's Base message registry whose messages a BMC
// answers with. A refuse rule may send any id.
const Registry = "Base.1.18."

// The messages of the refusals that a BMC makes itself.
const (
	MsgGeneralError       = Registry + "GeneralError"
	MsgInternalError      = Registry + "InternalError"
	MsgMissingAtURI       = Registry + "ResourceMissingAtURI"
	MsgParameterNotInList = Registry + "ActionParameterValueNotInList"
	MsgParameterConflict  = Registry + "ActionParameterValueConflict"
)

// Request is what a client asks of a BMC. Build the ones about power with
// BMC.PowerRequest and BMC.ResetRequest: their paths are those of the Redfish
// service, so that a Rule means the same in the simulator, over IPMI and on the wire.
type Request struct {
	Client    string    `json:"client,omitempty"` // who asks, for the log
	Via       string    `json:"via,omitempty"`    // ViaIPMI; empty is Redfish
	Method    string    `json:"method"`           // upper case; empty for what happens without a request: a connection that was reset, a rule that takes place by itself
	Path      string    `json:"path"`             // without trailing slash
	Query     string    `json:"query,omitempty"`  // of the URL, without its question mark
	Body      string    `json:"body,omitempty"`   // of a Redfish request that changes something, in JSON, without secrets
	ResetType ResetType `json:"reset,omitempty"`  // of a ComputerSystem.Reset or Manager.Reset

	own  bool // the BMC's own
	cold bool // the BMC that restarts forgets
}

// The protocols by which a request can come.
const (
	ViaRedfish = "redfish"
	ViaIPMI    = "ipmi"
)

// The clients of the resets that a BMC executes by itself.
const (
	ClientBMC      = "bmc"      // a transition, an automatic or a duplicate reset
	ClientWatchdog = "watchdog" // the host watchdog timer has expired
	ClientEvents   = "events"   // an event is sent to a subscriber
	ClientRestore  = "restore"  // a power restore policy
)

func (r *Request) via() string {
	if r.Via == "" {
		return ViaRedfish
	}
	return r.Via
}

// Answer is what the client gets.
type Answer struct {
	Status     int           `json:"status"`               // HTTP status; 0 when the connection broke
	PowerState PowerState    `json:"powerState,omitempty"` // the reported state, for a power request; empty is null
	MessageID  string        `json:"messageId,omitempty"`  // Redfish message of a refusal
	Args       []string      `json:"args,omitempty"`       // of the message
	Message    string        `json:"message,omitempty"`    // text that replaces the registry's
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // nanoseconds; 0 is none
	Code       uint8         `json:"code,omitempty"`       // IPMI completion code of a refusal; 0 is derived from the status
	Task       *Task         `json:"task,omitempty"`       // that a 202 leads to
	Cause      error         `json:"-"`                    // ErrUnreachable, or the System's error
	Refusal    *Refusal      `json:"-"`                    // the rule's that the answer comes from, if it does
}

// Err is nil when the request was accepted. It wraps Cause.
func (a Answer) Err() error {
	switch {
	case a.Status >= 200 && a.Status < 300:
		return nil
	case errors.Is(a.Cause, ErrUnreachable):
		return a.Cause
	case a.Cause != nil:
		return fmt.Errorf("bmc answered %d %s: %w", a.Status, a.MessageID, a.Cause)
	}
	return fmt.Errorf("bmc answered %d %s", a.Status, a.MessageID)
}

// Never is the time of something that has not happened.
const Never time.Duration = -1

// Record is the log entry of one request, evidence in reports. Times are
// nanoseconds on the BMC's Clock, or Never.
type Record struct {
	Seq      uint64        `json:"seq"` // counts from 1 for each BMC, in order of arrival
	Host     string        `json:"host"`
	Request  Request       `json:"request"`
	Received time.Duration `json:"received"`
	Executed time.Duration `json:"executed"`         // Never when it was refused, ignored or put off
	Answered time.Duration `json:"answered"`         // Never for a hang
	Actual   PowerState    `json:"actual,omitempty"` // the true state when a power request was executed
	Answer   Answer        `json:"answer"`
	Rules    []string      `json:"rules,omitempty"` // names of the rules that fired, in order

	cycled bool // once it is answered, there is no power for a while
}

// Refuse returns the answer that refuses a request with a message of a registry.
func Refuse(status int, id string, cause error, args ...string) Answer {
	return Answer{Status: status, MessageID: id, Args: args, Cause: cause}
}

func resetRefusal(t ResetType, err error) Answer {
	switch {
	case errors.Is(err, ErrConflict):
		return Refuse(statusConflict, MsgParameterConflict, err, "ResetType", string(t))
	case errors.Is(err, ErrUnsupported):
		return Refuse(statusBadRequest, MsgParameterNotInList, err, string(t), "ResetType", "ComputerSystem.Reset")
	}
	return Failure(err)
}

// Failure answers with an error of the System, which whoever looks for the reason
// has to read.
func Failure(err error) Answer {
	a := Refuse(statusServerError, MsgInternalError, err)
	a.Message = err.Error()
	return a
}
