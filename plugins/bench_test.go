package plugins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/plugins"
)

// BenchmarkInspect passes one message through a pipeline of plugins that allow it. Case "one" has
// one plugin. Case "together" has three plugins in one process, which share a request. Case
// "together-plain" is the same without TLS. Case "apart" has three plugins, each in its own
// process.
//
// host-ns/op is the processor time of the host, and plugin-ns/op is the processor time of the
// plugins (Linux only). Both vary less than ns/op when other programs use the machine.
func BenchmarkInspect(b *testing.B) {
	for _, way := range []struct {
		name  string
		specs []plugins.Spec
		noTLS bool
	}{
		{"one", allowAllSpecs(1, true), false},
		{"together", allowAllSpecs(3, true), false},
		{"together-plain", allowAllSpecs(3, true), true},
		{"apart", allowAllSpecs(3, false), false},
	} {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			for _, concurrency := range []int{1, 32} {
				b.Run(fmt.Sprintf("%s/%dKiB/%d", way.name, size>>10, concurrency),
					func(b *testing.B) {
						for i := range way.specs {
							way.specs[i].NoTLS = way.noTLS
						}
						host := plugins.New(plugins.Options{BuiltinCommand: []string{os.Args[0],
							"", "plugin", "allow-all"}})
						defer host.Close()
						set, err := host.Load(b.Context(), way.specs)
						if err != nil {
							b.Fatal(err)
						}
						pass(b, pipeline.New(discardRecorder{}, pipeline.Options{},
							set.Stages(way.specs)...),
							concurrency, size)
					})
			}
		}
	}
}

// allowAllSpecs returns the specs of n plugins that allow every message. If shared is set, the
// plugins run in one process; otherwise each has its own process.
func allowAllSpecs(n int, shared bool) (specs []plugins.Spec) {
	for i := range n {
		s := plugins.Spec{Name: fmt.Sprint("allow-all", i), Servers: []string{"*"},
			Timeout: 5 * time.Second, Config: []byte(`{}`), Grants: plugins.AllGrants()}
		if shared {
			s.Use, s.Shared = "allow-all", true
		} else {
			s.Command = []string{os.Args[0], "plugin", "allow-all"}
		}
		specs = append(specs, s)
	}
	return specs
}

// pass passes b.N calls with a text of size bytes through p, from several goroutines at a time.
func pass(b *testing.B, p *pipeline.Pipeline, concurrency, size int) {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x","arguments":{"text":"`+
		strings.Repeat("lorem ipsum ", size/12+1)[:size]+`"}}`))
	m.Direction, m.Server, m.Name = mcp.ToServer, "a", "x"
	m.Session, m.Exchange = "session", "exchange"
	if _, err := p.Pass(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	host, children := processorTime()
	b.ResetTimer()
	var all sync.WaitGroup
	var started atomic.Int64
	for range concurrency {
		all.Go(func() {
			for started.Add(1) <= int64(b.N) {
				if _, err := p.Pass(b.Context(), m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	host2, children2 := processorTime()
	b.ReportMetric(float64(host2-host)/float64(b.N), "host-ns/op")
	b.ReportMetric(float64(children2-children)/float64(b.N), "plugin-ns/op")
}

// processorTime returns the processor time of this process and of its children in nanoseconds, or 0
// where the system does not have /proc.
func processorTime() (self, children int64) {
	sum := func(pattern string) (n int64) {
		tasks, _ := filepath.Glob(pattern)
		for _, t := range tasks {
			var ns int64
			if b, err := os.ReadFile(t); err == nil {
				fmt.Sscan(string(b), &ns)
			}
			n += ns
		}
		return n
	}
	families, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range families {
		pids, _ := os.ReadFile(f)
		for pid := range strings.FieldsSeq(string(pids)) {
			children += sum("/proc/" + pid + "/task/*/schedstat")
		}
	}
	return sum("/proc/self/task/*/schedstat"), children
}

// discardRecorder records nothing.
type discardRecorder struct{}

func (discardRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }

// BenchmarkSharedState denies a message without and with one call of the state that replicas share,
// which is in the memory of this process. The difference is the cost of the call.
func BenchmarkSharedState(b *testing.B) {
	specs := []plugins.Spec{sharingSpec("a")}
	host := plugins.New(plugins.Options{BuiltinCommand: []string{os.Args[0], "", "plugin"},
		BuiltinPlugins: []string{"scripted"},
		Shared:         &plugins.SharedState{State: &shared.Memory{}}})
	defer host.Close()
	set, err := host.Load(b.Context(), specs)
	if err != nil {
		b.Fatal(err)
	}
	p := pipeline.New(discardRecorder{}, pipeline.Options{}, set.Stages(specs)...)
	for name, do := range map[string]string{"without": "show", "with": "open"} {
		m := stateCall(`{"do":"` + do + `","name":"x"}`)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Pass(b.Context(), m); err == nil {
					b.Fatal("the message was not denied")
				}
			}
		})
	}
}
