package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"gatekit/transport"
	"gatekit/transport/sandbox"
)

// BenchmarkStartConfined measures what the level guard adds to the start of a server, until the
// server's first answer. It starts the server with and without the sandbox in turns, and reports
// medians, also of the processor time of all processes. The test program is as large as Gatekit, so
// its start before the server's takes as long.
func BenchmarkStartConfined(b *testing.B) {
	levels := []sandbox.Level{sandbox.Off, sandbox.Guard}
	var wall, cpu [2][]time.Duration
	home := b.TempDir()
	for b.Loop() {
		for i, level := range levels {
			before, start := processorTime(b), time.Now()
			child, err := transport.Spawn(b.Context(), transport.Command{Name: "cat", Path: "cat",
				Dir: home, Env: map[string]string{"HOME": home},
				Sandbox: &transport.Sandbox{Settings: sandbox.Settings{Level: level}}})
			if err != nil {
				b.Fatal(err)
			}
			if err := child.Write(b.Context(), []byte(`{"jsonrpc":"2.0"}`)); err != nil {
				b.Fatal(err)
			}
			if _, err := child.Read(b.Context()); err != nil {
				b.Fatal(err)
			}
			wall[i] = append(wall[i], time.Since(start))
			child.Close()
			cpu[i] = append(cpu[i], processorTime(b)-before)
		}
	}
	for i, level := range levels {
		b.ReportMetric(milliseconds(median(wall[i])), string(level)+"-ms")
	}
	b.ReportMetric(milliseconds(median(differences(wall))), "added-ms")
	b.ReportMetric(milliseconds(median(differences(cpu))), "added-cpu-ms")
}

// processorTime returns the processor time of this process and of its children that have ended.
func processorTime(b *testing.B) time.Duration {
	sum := int64(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += u.Utime.Nano() + u.Stime.Nano()
	}
	return time.Duration(sum)
}

func differences(d [2][]time.Duration) (all []time.Duration) {
	for i := range d[0] {
		all = append(all, d[1][i]-d[0][i])
	}
	return all
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
