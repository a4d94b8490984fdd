package redfish

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// eventRegistry is that of the messages in power events, and eventPrefix its name.
const (
	eventPrefix   = "ResourceEvent"
	eventRegistry = eventPrefix + ".1.4."
)

// The messages that only the service sends; fakebmc has those of a BMC.
const (
	msgParameterMissing     = fakebmc.Registry + "ActionParameterMissing"
	msgActionNotSupported   = fakebmc.Registry + "ActionNotSupported"
	msgNotAllowed           = fakebmc.Registry + "OperationNotAllowed"
	msgMalformedJSON        = fakebmc.Registry + "MalformedJSON"
	msgUnrecognizedBody     = fakebmc.Registry + "UnrecognizedRequestBody"
	msgHeaderInvalid        = fakebmc.Registry + "HeaderInvalid"
	msgPropertyMissing      = fakebmc.Registry + "PropertyMissing"
	msgNoValidSession       = fakebmc.Registry + "NoValidSession"
	msgUnauthorized         = fakebmc.Registry + "ResourceAtUriUnauthorized"
	msgSessionLimit         = fakebmc.Registry + "SessionLimitExceeded"
	msgPreconditionFailed   = fakebmc.Registry + "PreconditionFailed"
	msgPreconditionRequired = fakebmc.Registry + "PreconditionRequired"
	msgPropertyUnknown      = fakebmc.Registry + "PropertyUnknown"
	msgPropertyDuplicate    = fakebmc.Registry + "PropertyDuplicate"
	msgPropertyType         = fakebmc.Registry + "PropertyValueTypeError"
	msgPropertyOutOfRange   = fakebmc.Registry + "PropertyValueOutOfRange"
	msgPropertyNotInList    = fakebmc.Registry + "PropertyValueNotInList"
	msgAccessDenied         = fakebmc.Registry + "AccessDenied"
	msgEventsExceeded       = fakebmc.Registry + "EventSubscriptionLimitExceeded"
	msgResourceInUse        = fakebmc.Registry + "ResourceInUse"
	msgUnavailable          = fakebmc.Registry + "ServiceTemporarilyUnavailable"
	msgQueryNotSupported    = fakebmc.Registry + "QueryNotSupported"
	msgQueryNotOnResource   = fakebmc.Registry + "QueryNotSupportedOnResource"
	msgQueryFormat          = fakebmc.Registry + "QueryParameterValueFormatError"
	msgQueryRange           = fakebmc.Registry + "QueryParameterOutOfRange"
)

// message is an entry of the registry; %1 and so on stand for arguments.
type message struct{ text, severity, resolution string }

// messages holds the texts as the Base registry publishes them, because clients
// match on them, by the key that ends a message id.
var messages = map[string]message{
	"GeneralError":                   {"A general error has occurred.  See Resolution for information on how to resolve the error, or @Message.ExtendedInfo if Resolution is not provided.", "Critical", "None."},
	"InternalError":                  {"The request failed due to an internal service error.  The service is still operational.", "Critical", "Resubmit the request.  If the problem persists, consider resetting the service."},
	"ResourceMissingAtURI":           {"The resource at the URI '%1' was not found.", "Critical", "Place a valid resource at the URI or correct the URI and resubmit the request."},
	"ResourceInUse":                  {"The change to the requested resource failed because the resource is in use or in transition.", "Warning", "Remove the condition and resubmit the request if the operation failed."},
	"ServiceTemporarilyUnavailable":  {"The service is temporarily unavailable.  Retry in %1 seconds.", "Critical", "Wait for the indicated retry duration and retry the operation."},
	"EventSubscriptionLimitExceeded": {"The event subscription failed due to the number of simultaneous subscriptions exceeding the limit of the implementation.", "Critical", "Reduce the number of other subscriptions before trying to establish the event subscription or increase the limit of simultaneous subscriptions, if supported."},
	"ActionParameterMissing":         {"The action %1 requires the parameter %2 to be present in the request body.", "Critical", "Supply the action with the required parameter in the request body when the request is resubmitted."},
	"ActionParameterValueNotInList":  {"The value '%1' for the parameter %2 in the action %3 is not in the list of acceptable values.", "Warning", "Choose a value from the enumeration list that the implementation can support and resubmit the request if the operation failed."},
	"ActionParameterValueConflict":   {"The parameter '%1' with the requested value of '%2' does not meet the constraints of the implementation.", "Warning", "None."},
	"ActionNotSupported":             {"The action %1 is not supported by the resource.", "Critical", "Check the Actions property in the resource for the supported actions."},
	"OperationNotAllowed":            {"The HTTP method is not allowed on this resource.", "Critical", "None."},
	"MalformedJSON":                  {"The request body submitted was malformed JSON and could not be parsed by the receiving service.", "Critical", "Ensure that the request body is valid JSON and resubmit the request."},
	"UnrecognizedRequestBody":        {"The service detected a malformed request body that it was unable to interpret.", "Warning", "Correct the request body and resubmit the request if it failed."},
	"HeaderInvalid":                  {"Header '%1' is invalid.", "Critical", "Resubmit the request with a valid request header."},
	"PropertyMissing":                {"The property %1 is a required property and must be included in the request.", "Warning", "Ensure that the property is in the request body and has a valid value and resubmit the request if the operation failed."},
	"PreconditionFailed":             {"The ETag supplied did not match the ETag required to change this resource.", "Critical", "Try the operation again using the appropriate ETag."},
	"PreconditionRequired":           {"A precondition header or annotation is required to change this resource.", "Critical", "Try the operation again using an If-Match or If-None-Match header and appropriate ETag."},
	"InsufficientPrivilege":          {"There are insufficient privileges for the account or credentials associated with the current session to perform the requested operation.", "Critical", "Either abandon the operation or change the associated access rights and resubmit the request if the operation failed."},
	"NoValidSession":                 {"There is no valid session established with the implementation.", "Critical", "Establish a session before attempting any operations."},
	"ResourceAtUriUnauthorized":      {"While accessing the resource at '%1', the service received an authorization error '%2'.", "Critical", "Ensure that the appropriate access is provided for the service in order for it to access the URI."},
	"PropertyUnknown":                {"The property %1 is not in the list of valid properties for the resource.", "Warning", "Remove the unknown property from the request body and resubmit the request if the operation failed."},
	"PropertyDuplicate":              {"The property %1 was duplicated in the request.", "Warning", "Remove the duplicate property from the request body and resubmit the request if the operation failed."},
	"PropertyValueTypeError":         {"The value '%1' for the property %2 is not a type that the property can accept.", "Warning", "Correct the value for the property in the request body and resubmit the request if the operation failed."},
	"PropertyValueOutOfRange":        {"The value '%1' for the property %2 is not in the supported range of acceptable values.", "Warning", "Correct the value for the property in the request body and resubmit the request if the operation failed."},
	"PropertyValueNotInList":         {"The value '%1' for the property %2 is not in the list of acceptable values.", "Warning", "Choose a value from the enumeration list that the implementation can support and resubmit the request if the operation failed."},
	"AccessDenied":                   {"While attempting to establish a connection to '%1', the service denied access.", "Critical", "Attempt to ensure that the URI is correct and that the service has the appropriate credentials."},
	"QueryNotSupported":              {"Querying is not supported by the implementation.", "Warning", "Remove the query parameters and resubmit the request if the operation failed."},
	"QueryNotSupportedOnResource":    {"Querying is not supported on the requested resource.", "Warning", "Remove the query parameters and resubmit the request if the operation failed."},
	"QueryParameterValueFormatError": {"The value '%1' for the parameter %2 is not a format that the parameter can accept.", "Warning", "Correct the value for the query parameter in the request and resubmit the request if the operation failed."},
	"QueryParameterOutOfRange":       {"The value '%1' for the query parameter %2 is out of range %3.", "Warning", "Reduce the value for the query parameter to a value that is within range, such as a start or count value that is within bounds of the number of resources in a collection or a page that is within the range of valid pages."},
	"ResourcePoweredOn":              {"The resource '%1' has powered on.", "OK", "None."},
	"ResourcePoweringOn":             {"The resource '%1' is powering on.", "OK", "None."},
	"ResourcePoweredOff":             {"The resource '%1' has powered off.", "OK", "None."},
	"ResourcePoweringOff":            {"The resource '%1' is powering off.", "OK", "None."},
	"ResourcePaused":                 {"The resource '%1' was paused.", "OK", "None."},
	"SessionLimitExceeded":           {"The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation.", "Critical", "Reduce the number of other sessions before trying to establish the session or increase the limit of simultaneous sessions, if supported."},
}

// fill puts arguments into a message's text.
func fill(text string, args ...string) string {
	for i, arg := range args {
		text = strings.ReplaceAll(text, "%"+strconv.Itoa(i+1), arg)
	}
	return text
}

// errorBody is the Redfish error response to a refusal.
func errorBody(a fakebmc.Answer) object {
	id := a.MessageID
	if id == "" {
		id = fakebmc.MsgGeneralError
	}
	m, known := messages[id[strings.LastIndexByte(id, '.')+1:]]
	if !known {
		m = message{"The request was refused.", "Critical", "None."}
	}
	args := a.Args
	if len(args) == 0 && strings.Contains(m.text, "%1") && a.RetryAfter > 0 {
		args = []string{strconv.Itoa(seconds(a.RetryAfter))}
	}
	text := fill(m.text, args...)
	if a.Message != "" {
		text = a.Message
	}
	if args == nil {
		args = []string{}
	}
	return object{"error": object{
		"code":    id,
		"message": text,
		"@Message.ExtendedInfo": []object{{
			"@odata.type":     "#Message.v1_1_2.Message",
			"MessageId":       id,
			"Message":         text,
			"MessageArgs":     args,
			"MessageSeverity": m.severity,
			"Severity":        m.severity,
			"Resolution":      m.resolution,
		}},
	}}
}

// seconds rounds up, since HTTP knows no shorter wait.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
