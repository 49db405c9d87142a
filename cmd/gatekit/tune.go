package main

import (
	"os"
	"runtime/debug"
)

// ballastBytes is the size of the ballast. The garbage collector lets the heap grow by at least
// this size before it runs.
const ballastBytes = 16 << 20

// tune configures the garbage collector, unless the environment does (GOGC, GOMEMLIMIT). A proxy
// has little permanent data, so its small heap would make the collector run too often. The ballast
// makes the heap seem larger. It is never written, so it takes no physical memory. The caller must
// keep it for as long as the proxy runs. A larger GOGC would have the same effect on a small heap,
// but would let a large heap grow to several times its size.
func tune() (ballast []byte) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		ballast = make([]byte, ballastBytes)
	}
	if _, ok := os.LookupEnv("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(1 << 30)
	}
	return ballast
}
