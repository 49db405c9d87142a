// Package conformance runs the official MCP conformance suite (npm
// @modelcontextprotocol/conformance) through Gatekit. The go-sdk's conformance server and client
// must pass the same checks through `gatekit run` as without Gatekit, in both eras, over HTTP and
// over stdio. In these runs Gatekit adds no prefix to names (prefix = "never"). The server is also
// tested as one of two servers, each with its prefix, and behind three replicas of Gatekit, to
// which a balancer sends the requests in turn: one in the test's process, haproxy and nginx. The
// client is also tested with the suite's server of the other era. Another test compares the
// messages that a real client receives directly and through Gatekit.
//
// In the scenarios auth/ for clients, Gatekit itself is the OAuth client, and the test is its
// operator, who logs in. There, no check may fail or warn.
//
// # Why each run is made twice
//
// The suite alone cannot test a proxy: some scenarios pass even if no server answers, and the
// number of checks depends on the server. So each run is also made without Gatekit, and the
// verdicts must be equal, check by check. No verdict is stored, so a new version of the suite or
// of the go-sdk is compared with itself.
package conformance
