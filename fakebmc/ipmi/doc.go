// Package ipmi serves a fakebmc.BMC over IPMI 2.0 on LAN (RMCP+), with cipher
// suites 3 and 17. No library in Go has a server side that could be used: those
// that are kept well are clients, so this one is written from the specification
// (IPMI 2.0 rev. 1.1, sections 13, 20, 22, 24, 27 and 28; ASF 2.0 for the ping).
//
// A power command becomes the same fakebmc.Request as over Redfish, so that every
// rule means the same; a completion code is derived from the answer.
package ipmi
