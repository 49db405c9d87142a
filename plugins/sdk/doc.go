// Package sdk is what the author of a plugin in Go needs: say what the plugin is (Plugin), make a
// Stage of a configuration, and serve it with Serve from main. It is API: what it promises, it
// keeps within one major version of the protocol (gatekit.plugin.v1).
//
// # What a stage must do
//
//   - Answer with an Action. The zero Verdict denies, and so does an error, a panic, and silence
//     beyond the time that the configuration gives.
//   - Keep nothing of a message, and change it by the Edits of its verdict only.
//   - Stop when ctx ends.
//   - Put no content of a message into reasons and findings: those are recorded, and what was
//     cleared must not be.
//
// examples/README.md goes from nothing to a plugin that runs, in ten minutes; examples/plugin-go is
// a whole one, in a module of its own.
//
// Package sdktest holds a stage to these. Package scan finds every text of a message, also where it
// is encoded.
package sdk
