// Package plugins is the host of plugins: programs that judge messages, each in a process of its
// own, started, watched and asked by Gatekit over gRPC (hashicorp/go-plugin; plugins/proto has the
// protocol). To the pipeline each is a stage.
//
// # What it promises
//
//   - A plugin that fails, hangs, dies, or answers what is not understood denies; the configuration
//     may say "skip" for its failures, which the pipeline does and records.
//   - One that died is started again, at once the first time and then with back-off. While it is
//     down, a message waits for it as long as it may wait for a verdict, and is then denied; when
//     it is known that it will not be back by then, at once. A question that was lost with its
//     process is put once more: inspecting changes nothing.
//   - One that gives no verdict in time three times in a row is taken to hang, and is killed and
//     started again.
//   - A plugin sees of a message what it needs and is granted, and what it does that it was not
//     granted is a failure.
//   - The process gets none of our environment but what the configuration gives it, no stdin, an
//     empty folder to work in, and its socket is in a folder that only we can enter. It leads its
//     own process group, and nothing of it is left when it ends. What it writes to stderr is
//     logged, line by line, escaped and within bounds.
//   - A program that is pinned by a checksum is copied, and the copy is checked and run: what lies
//     at its path later does not matter. It is checked at each start.
//
// # Why several stages ask one process at once
//
// The plugins that come with Gatekit run in one process. Neighbours among them are asked in one
// question, each about what those before it made of the message: a round trip costs more than what
// they do. Each verdict comes back, and is applied and recorded, on its own.
//
// # Why streams
//
// A unary call sets up an HTTP/2 stream, headers and all, for each message. Streams that stay open,
// one question in flight on each, cost a third less, and a question that nobody waits for any more
// is given up by ending its stream (performance.md 6).
//
// # Why a stage outlives its configuration
//
// A call that began under one configuration ends under it, and calls take minutes. So what a new
// configuration no longer has is closed a while later.
package plugins
