// Package sdk is for authors of plugins in Go. Describe the plugin (Plugin), make a Stage from a
// configuration, and call Serve from main. The package is a public API: it stays compatible within
// one major version of the protocol (gatekit.plugin.v1).
//
// # What a stage must do
//
//   - Return a Verdict with an Action within the time that the configuration gives. The zero
//     Verdict denies. By default, an error, a panic or a time-out also denies.
//   - Keep no part of a message, and change a message only through the Edits of the verdict.
//   - Return when ctx ends.
//   - Put no content of a message into reasons and findings. The audit log records reasons and
//     findings, and must not hold redacted text.
//
// examples/README.md shows how to write and run a plugin in ten minutes; examples/plugin-go is a
// complete plugin in a module of its own. Package sdktest tests that a stage follows these rules.
// Package scan finds all text in a message, also where the text is encoded.
//
// sdk.go has the types, serve.go the gRPC server, sockets.go the server for requests that come over
// sockets, sharedstate.go the stages that use the state that replicas share, and schema.go checks
// configurations.
package sdk
