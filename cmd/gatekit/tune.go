package main

import (
	"os"
	"runtime/debug"
)

// ballastBytes is the least growth of the heap, in bytes, after which the collector runs.
const ballastBytes = 16 << 20

// tune configures the garbage collector, unless the environment (GOGC, GOMEMLIMIT) does. A proxy
// has little permanent data, and its messages are large and quickly freed. The caller keeps the
// returned ballast for as long as the proxy runs. The ballast is never written, so it takes no
// physical memory, but it counts when the collector computes how far the heap may grow. A larger
// GOGC would do the same for a small heap, but would let a large heap grow several times over.
func tune() (ballast []byte) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		ballast = make([]byte, ballastBytes)
	}
	if _, ok := os.LookupEnv("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(1 << 30)
	}
	return ballast
}
