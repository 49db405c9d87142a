package main

import (
	"os"
	"runtime/debug"
)

// ballastBytes is how much garbage there is, at least, before it is collected.
const ballastBytes = 16 << 20

// tune sets the garbage collector for a proxy, whose messages live shortly and are much larger than
// what stays, unless the environment (GOGC, GOMEMLIMIT) sets it. The caller keeps the returned
// ballast for as long as the proxy runs. The ballast is never touched, and so never resident, but
// it counts when the collector computes how far the heap may grow. A larger GOGC would do the same
// for a small heap, and let a large one grow several times over.
func tune() (ballast []byte) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		ballast = make([]byte, ballastBytes)
	}
	if _, ok := os.LookupEnv("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(1 << 30)
	}
	return ballast
}
