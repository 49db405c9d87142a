// Package conformance runs the official MCP conformance suite against a server directly and through Gatekit, and compares the verdicts.
package conformance
