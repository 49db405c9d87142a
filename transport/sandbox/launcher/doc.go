// Package launcher confines the process that it runs in, and then executes a program. It runs
// before main, in a process that Gatekit starts from its own program with the argv[0] Name.
//
// # Why the package is separate
//
// Most of the start of Gatekit is the initialization of packages that the launcher does not need.
// A package is initialized after the packages that it imports, and apart from that in the order of
// the import paths. This package imports only packages of the standard library that are initialized
// early, not even fmt. So its init function runs before nearly all others. A test checks that.
//
// # Why a process is needed
//
// A thread of Gatekit could confine itself and then start the program, which would save the time
// for the process. But the program and this thread would be in one sandbox, within which Landlock
// allows processes to trace and signal each other. The program could reach Gatekit's memory through
// the thread, which must live as long as the program (see transport/process).
package launcher

// Name is the argv[0] of the process.
const Name = "gatekit-sandbox"
