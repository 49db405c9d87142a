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
	"gatekit/plugins"
)

// BenchmarkInspect is one message through a pipeline of plugins that let all pass: one, three in
// one process (one question), and three in processes of their own. host-ns/op is processor time of
// this side and plugin-ns/op that of the plugins (Linux): both hold better than ns/op when others
// use the machine.
func BenchmarkInspect(b *testing.B) {
	for _, way := range []struct {
		name  string
		specs []plugins.Spec
		plain bool
	}{
		{"one", nodding(1, true), false},
		{"together", nodding(3, true), false},
		{"together-plain", nodding(3, true), true},
		{"apart", nodding(3, false), false},
	} {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			for _, at := range []int{1, 32} {
				b.Run(fmt.Sprintf("%s/%dKiB/%d", way.name, size>>10, at), func(b *testing.B) {
					for i := range way.specs {
						way.specs[i].NoTLS = way.plain
					}
					host := plugins.New(plugins.Options{BuiltinCommand: []string{os.Args[0],
						"", "plugin", "nods"}})
					defer host.Close()
					set, err := host.Load(b.Context(), way.specs)
					if err != nil {
						b.Fatal(err)
					}
					pass(b, pipeline.New(forgetful{}, pipeline.Options{}, set.Stages(way.specs)...),
						at, size)
				})
			}
		}
	}
}

// nodding are the specs of n plugins that let all pass.
func nodding(n int, together bool) (specs []plugins.Spec) {
	for i := range n {
		s := plugins.Spec{Name: fmt.Sprint("nods", i), Servers: []string{"*"},
			Timeout: 5 * time.Second, Config: []byte(`{}`), Grants: plugins.AllGrants()}
		if together {
			s.Use = "nods"
		} else {
			s.Command = []string{os.Args[0], "plugin", "nods"}
		}
		specs = append(specs, s)
	}
	return specs
}

// pass lets b.N calls with a text of that many bytes pass p, some at a time.
func pass(b *testing.B, p *pipeline.Pipeline, at, size int) {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x","arguments":{"text":"`+
		strings.Repeat("all is well ", size/12+1)[:size]+`"}}`))
	m.Direction, m.Server, m.Name, m.Session, m.Exchange = mcp.ToServer, "a", "x", "session",
		"exchange"
	if _, err := p.Pass(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	host, children := used()
	b.ResetTimer()
	var all sync.WaitGroup
	var begun atomic.Int64
	for range at {
		all.Go(func() {
			for begun.Add(1) <= int64(b.N) {
				if _, err := p.Pass(b.Context(), m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	host2, children2 := used()
	b.ReportMetric(float64(host2-host)/float64(b.N), "host-ns/op")
	b.ReportMetric(float64(children2-children)/float64(b.N), "plugin-ns/op")
}

// used is the processor time, in nanoseconds, of this process and of its children, as far as the
// system says it.
func used() (self, children int64) {
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

// forgetful records nothing.
type forgetful struct{}

func (forgetful) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }
