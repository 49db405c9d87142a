// Package proto is the protocol between Gatekit and its plugins (gatekit/plugin/v1/plugin.proto),
// and converts between the types of the protocol and those of package core. Both sides use it: the
// host (package plugins) and the SDK (package sdk).
//
// Actions, kinds and directions are mapped one by one and not cast. A value that a later version
// adds is therefore unknown, and denies.
//
// codec.go is the gRPC codec of both sides, convert.go has the conversions.
//
//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.59.0 generate
package proto

import "github.com/hashicorp/go-plugin"

// Handshake returns the handshake by which a plugin knows that Gatekit started it. The handshake is
// not a security measure. It lets a program that is run by hand explain itself and end.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "GATEKIT_PLUGIN",
		MagicCookieValue: "gatekit.plugin.v1"}
}

// ServiceName is the service's name in go-plugin.
const ServiceName = "gatekit"

// MaxMessageBytes is the size of the largest message of the protocol: the largest MCP message, with
// room for the fields around it.
const MaxMessageBytes = 256 << 20

// StreamWindow and ConnWindow are how many bytes each side may send before the other has read them.
// The sizes are fixed. Otherwise gRPC would send a ping for each message to find better ones.
const (
	StreamWindow = 1 << 20
	ConnWindow   = 4 << 20
)
