// Package plugins runs plugins: programs that inspect messages. Each program has its own process;
// the plugins that come with Gatekit may share one process ([Spec]). A process serves gRPC
// (hashicorp/go-plugin; package plugins/proto holds the protocol). The host starts the processes,
// watches them and sends them messages, over gRPC or over sockets. In the pipeline, each plugin is
// a stage.
//
// # What it promises
//
//   - A plugin that returns an error, hangs, crashes or sends an invalid response denies the
//     message. The configuration may say on_error = "skip"; the pipeline then skips and records
//     errors, time-outs and crashes.
//   - A process that ended is restarted: at once if it ended while it inspected a message, or for
//     the first time, otherwise with exponential back-off. A message that arrives before the
//     restart waits for it until the plugin's timeout, and is then denied. If the restart is due
//     after the timeout, the message is denied at once.
//   - If a process ends before it responds, the request is sent a second time. This is safe,
//     because an inspection changes nothing.
//   - A message that ends a process hurts no other message, see below.
//   - A message that could exceed the memory of the process is refused. Large messages share the
//     process fairly: one client or server gets at most three quarters of it.
//   - Only built-in plugins can call the state that replicas share, and only if there is one. The
//     host binds their names to the plugin's name, bounds the calls, and ends them in time.
//   - A process that gives no verdict in time three times in a row is killed and restarted.
//   - A plugin sees only the parts of a message that it needs and is granted. A verdict with an
//     action that the plugin is not granted denies the message.
//   - On Linux, the process is confined with the level strict of package sandbox, and cannot
//     connect. If the system cannot hold that, the process runs without a sandbox, unless the
//     configuration asks for a level ([Sandbox]).
//   - The environment of the process has only the variables of the configuration, of go-plugin, of
//     package socket and of package sandbox. The process has no stdin, and its working folder is
//     empty. Its gRPC socket lies in a folder that only Gatekit's user can enter. The process leads
//     its own process group, which is killed when the process ends. Its stderr is logged line by
//     line, escaped and limited in size.
//   - A program that is pinned by a checksum is copied at each start; the copy is checked and run.
//     A later change of the file at the configured path therefore has no effect.
//
// # Why several stages share one request
//
// Adjacent stages of the pipeline that run in the same process share one request to it, because a
// round trip costs more than the inspections. Each stage inspects the message with the edits of the
// stages before it. The response has a verdict for each stage, and the pipeline applies and records
// each verdict on its own.
//
// # Why streams
//
// The host keeps streams open, and each stream carries one request at a time. To cancel a request,
// the host ends the request's stream. A plugin of Gatekit's Go SDK is asked over sockets
// (plugins/proto/socket), which take less than half the time of gRPC. Other plugins are asked over
// streams of gRPC. A unary call for each message would take a third longer than these.
//
// # Why there is an isolated process
//
// When a process ends, any of the messages in flight may have ended it. All of them are sent again
// to a second process, the isolated process, one at a time. So the message that ends a process is
// alone when it does so again. It is then denied, and refused without being asked about when it
// comes again. The main process is restarted meanwhile, and inspects all new messages.
//
// A sender could end the main process again with another message. So for a minute, all messages of
// its origin go to the isolated process. The origin is one direction of one server, for example all
// results of the server "files". After three ends of a process, the origin is refused for a growing
// time. Other origins are not affected: their messages go to the main process.
//
// The stages in the isolated process do not share the memory of those in the main process. What a
// stage hid from a list stays hidden, because the pipeline remembers it.
//
// # Why verdicts carry the calls of the shared state
//
// A built-in plugin may count together with other replicas ([SharedState]). It runs without
// network, so the host makes the calls. If the plugin waited for them, each process would wake up
// once more. So the verdict says what has to be counted, and holds if that is counted. Otherwise
// the plugin gets the result, and returns another verdict. See docs/decisions/0020.
//
// # Why verdicts on definitions are kept
//
// Clients ask for the same lists again and again. A stage may promise that its verdict on a
// definition depends only on the bytes (Reuse in plugin.proto). The process then keeps the verdict
// (keptVerdicts) and asks the stage only about definitions that are new, see docs/decisions/0018.
//
// # Why a stage outlives its configuration
//
// A call can take minutes, and uses the stages of the configuration under which it began. A stage
// that a new configuration does not have is therefore closed some minutes after the reload.
//
// # Where to read
//
// spec.go has the configuration of one plugin, host.go the host, set.go the plugins of one
// configuration, and stage.go a plugin in the pipeline. supervisor.go keeps a process running,
// process.go starts and ends a process, with the help of runner.go, program.go and memory_linux.go.
// reuse.go finds the verdicts that keptverdicts.go keeps, and asks about other messages. inspect.go
// sends messages to a process over the streams of streams.go, which are sockets or gRPC
// streams. isolated.go has the isolated process, and offenses.go remembers which messages go to it.
// status.go reports the state of all main processes. sharedstate.go makes the calls of the state
// that replicas share.
package plugins
