// Package conformance holds Gatekit against the official MCP conformance suite, npm
// @modelcontextprotocol/conformance, and against a real client's view of a server: all that the
// go-sdk's conformance server and client show when they meet directly, they must show through
// `gatekit run` with prefix = "never", in both eras, over HTTP and over stdio; the server also as
// one of two, each in its namespace, and the client also when the suite's server is of the other
// era.
//
// # Why each run is made twice
//
// The suite alone is no judge of a proxy: some of its scenarios pass when nobody answers at all,
// and the number of checks depends on the server. So the same run is made with Gatekit left out,
// and the verdicts must be equal, check by check. No verdict is stored: a new suite or go-sdk is
// measured by itself.
package conformance
