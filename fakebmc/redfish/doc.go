// Package redfish serves BMCs to real clients, over the Redfish protocol: HTTP and
// TLS, resources and messages, accounts and sessions. What a BMC does and what it gets
// wrong is package fakebmc's; a rule that is about headers or sessions is carried out here.
package redfish
