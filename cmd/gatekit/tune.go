package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"gatekit/core/backoff"
)

// startPercent is GOGC during the start: the first collection runs when the heap has 32 MiB.
const startPercent = 800

// startTime is how long GOGC stays at startPercent after the start, so that a collection does not
// delay the first answers.
const startTime = time.Second

// ballastBytes is the size of the ballast. The garbage collector lets the heap grow by at least
// this size before it runs.
const ballastBytes = 16 << 20

// growHeap lets the heap grow during the start, when almost nothing is garbage, unless GOGC is set.
// It also limits the memory, unless GOMEMLIMIT is set. The caller must call tune later.
func growHeap() {
	if !isSet("GOGC") {
		debug.SetGCPercent(startPercent)
	}
	if !isSet("GOMEMLIMIT") {
		debug.SetMemoryLimit(1 << 30)
	}
}

// tune configures the garbage collector until ctx ends, unless GOGC is set. A proxy has little
// permanent data. Its small heap would make the collector run too often, so the ballast makes the
// heap seem larger. Nothing is written to the ballast, so it takes no physical memory. A larger
// GOGC would have the same effect on a small heap, but would let a large heap grow to several times
// its size.
func tune(ctx context.Context) {
	if isSet("GOGC") {
		return
	}
	backoff.Sleep(ctx, startTime)
	debug.SetGCPercent(100)
	ballast := make([]byte, ballastBytes)
	<-ctx.Done()
	runtime.KeepAlive(ballast)
}

func isSet(variable string) bool {
	_, ok := os.LookupEnv(variable)
	return ok
}
