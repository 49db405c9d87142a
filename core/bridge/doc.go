// Package bridge connects peers of different eras: a client and a server that cannot speak to each
// other natively, because one begins with initialize (MCP up to 2025-11-25) and the other does not
// (MCP 2026-07-28). The native paths of core/downstream and core/upstream do not import it; cmd
// wires it to both.
//
// [ParkedCalls] are the calls of modern clients whose server asks while they run (parked.go,
// parkedcall.go, parkedquestion.go).
package bridge
