// Package proto is the protocol between Gatekit and its plugins (gatekit/plugin/v1/plugin.proto).
// It converts between the types of the protocol and the types of packages core/mcp and
// core/pipeline. The host (package plugins) and the SDK (package sdk) both use it.
//
// Actions, kinds and directions are mapped one by one and not cast. A value that a later version
// adds is therefore unknown, and denies.
//
// codec.go has the gRPC codec of both sides, encode.go the encoding of requests for sockets,
// convert.go and state.go the conversions, and bytelimit.go the limit for large messages.
//
//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.59.0 generate
package proto

import "github.com/hashicorp/go-plugin"

// Handshake returns the handshake by which a plugin knows that Gatekit started it. A user may also
// start the program by hand; without the handshake, the program prints an explanation and exits.
// The handshake is not a security measure.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "GATEKIT_PLUGIN",
		MagicCookieValue: "gatekit.plugin.v1"}
}

// ServiceName is the service's name in go-plugin.
const ServiceName = "gatekit"

// MaxMessageBytes is the size of the largest message of the protocol: the largest MCP message, with
// room for the fields around it.
const MaxMessageBytes = 256 << 20

// StreamWindow and ConnWindow are how many bytes each side may send on a stream, and on the whole
// connection, before the other side has read them. The sizes are fixed. Otherwise gRPC would send a
// ping for each message to find better sizes.
const (
	StreamWindow = 1 << 20
	ConnWindow   = 4 << 20
)
