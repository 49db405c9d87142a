// Package proto is the protocol between Gatekit and its plugins (gatekit/plugin/v1/plugin.proto),
// and what its messages are in core's words. Both sides use it: the host (package plugins) and the
// SDK (package sdk).
//
// Numbers of actions, kinds and directions are mapped one by one and not cast: what a later version
// adds is not understood, and denies.
//
//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.59.0 generate
package proto

import "github.com/hashicorp/go-plugin"

// Handshake is how a plugin knows that Gatekit started it. It is no security: a program that is run
// by hand says so and ends.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "GATEKIT_PLUGIN",
		MagicCookieValue: "gatekit.plugin.v1"}
}

// ServiceName is the name that go-plugin knows the service by.
const ServiceName = "gatekit"

// MaxMessageBytes is the size of the largest message of the protocol: one of MCP's largest, and
// room for what goes with it.
const MaxMessageBytes = 256 << 20

// StreamWindow and ConnWindow are how many bytes each side lets the other send ahead. They are
// fixed, because gRPC finds out better ones by a ping for each message.
const (
	StreamWindow = 1 << 20
	ConnWindow   = 4 << 20
)
