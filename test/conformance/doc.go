// Package conformance compares Gatekit with the official MCP conformance suite, npm
// @modelcontextprotocol/conformance, and with what a real client sees of a server. The go-sdk's
// conformance server and client must pass the same checks through `gatekit run`, with prefix =
// "never", as without it: in both eras, over HTTP and over stdio. The server is also tested as one
// of two, each in its namespace, and the client also with the suite's server of the other era.
//
// # Why each run is made twice
//
// The suite alone does not judge a proxy: some scenarios pass even when nobody answers, and the
// number of checks depends on the server. So each run is also made without Gatekit, and the
// verdicts must be equal, check by check. No verdict is stored: a new suite or go-sdk is compared
// with itself.
package conformance
