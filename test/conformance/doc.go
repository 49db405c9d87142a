// Package conformance holds Gatekit against the official conformance suite (npm @modelcontextprotocol/conformance): all that a server shows
// directly it must show through `gatekit run` with prefix = "never", for clients and servers of one era.
//
// The suite alone is no judge of a proxy, because some of its scenarios pass on nothing. So each run is made twice, once with Gatekit
// left out, and what succeeds then must succeed through Gatekit, check by check.
package conformance
