package audit_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/core/pipeline"
)

// BenchmarkRecord writes records to a file. Each record is about a message that was forwarded
// unchanged. The case "memory" discards the lines, so it measures only the log's own work.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		m := parse(b, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"text":"`+strings.Repeat("x", size)+`"}}}`)
		outcome := pipeline.Outcome{Time: time.Now(), Before: m, After: m, Action: "pass"}
		for _, durability := range []audit.Durability{"memory", audit.DurabilityWrite,
			audit.DurabilityFsync,
			audit.DurabilityAsync} {
			for _, concurrency := range []int{1, 32} {
				b.Run(fmt.Sprintf("%dKiB/%s/%d", size>>10, durability, concurrency),
					func(b *testing.B) {
						options := audit.Options{File: filepath.Join(b.TempDir(), "log"),
							Durability: durability}
						if durability == "memory" {
							options = audit.Options{Writer: discard{}}
						}
						l := open(b, options)
						defer l.Close()
						var failed atomic.Int64
						b.ReportAllocs()
						b.SetParallelism(max(1, concurrency/runtime.GOMAXPROCS(0)))
						recordOne := func() {
							if _, err := l.Record(b.Context(), outcome); err != nil {
								failed.Add(1) // the queue of DurabilityAsync was full
							}
						}
						if concurrency == 1 {
							for b.Loop() {
								recordOne()
							}
						} else {
							b.RunParallel(func(pb *testing.PB) {
								for pb.Next() {
									recordOne()
								}
							})
						}
						if n := failed.Load(); n > 0 {
							b.ReportMetric(float64(n)/float64(b.N), "refused/op")
						}
					})
			}
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkVerification verifies a log of a million records like those of a tools/call, and reports
// records per second.
func BenchmarkVerification(b *testing.B) {
	file := filepath.Join(b.TempDir(), "log.jsonl")
	l := open(b, audit.Options{File: file})
	m := parse(b, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"path":"/srv/data/report.txt"}}}`)
	outcome := pipeline.Outcome{Time: time.Now(), Before: m, After: m, Action: "pass",
		Duration: 100 * time.Microsecond, Steps: []pipeline.Step{
			{Stage: "secrets", Action: "pass", Duration: 50 * time.Microsecond}, {Stage: "policies",
				Action: "pass", Duration: 40 * time.Microsecond}}}
	const n = 1_000_000
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range n / 32 {
				if _, err := l.Record(b.Context(), outcome); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		v := audit.Verification{File: file}
		if result, err := v.Run(b.Context()); err != nil || result.Last != n {
			b.Fatalf("got %+v and error %v, want %d verified records", result, err, n)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
