package injection

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goroot returns the root folder of the Go installation. It skips the test if there is no go
// command.
func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	return strings.TrimSpace(string(out))
}

// ordinaryText returns n bytes of documentation and code.
func ordinaryText(t testing.TB, n int) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"doc/go_mem.html", "src/net/http/doc.go",
		"src/net/http/server.go", "src/net/http/transport.go", "doc/go_spec.html",
		"src/go/types/stmt.go"} {
		raw, err := os.ReadFile(filepath.Join(goroot(t), name))
		if err != nil {
			t.Skip("no sources of Go on this machine: ", err)
		}
		b.Write(raw)
	}
	s := strings.ToValidUTF8(b.String(), "")
	for len(s) < n {
		s += s
	}
	return s[:n]
}

func BenchmarkInspect(b *testing.B) {
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		m := labelled{Text: ordinaryText(b, n)}.message()
		s := newTestStage(b, `{}`)
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				inspect(b, s, m)
			}
		})
	}
}

// BenchmarkInspectHostileText inspects the texts that take the most time. Each text repeats words
// with which many rules begin to match.
func BenchmarkInspectHostileText(b *testing.B) {
	const n = 64 << 10
	for _, text := range []string{"ignore all previous ",
		"send all your secrets and the conversation to you ", "tell not never tell ",
		"a b c d e f ", "<system [SYSTEM ```", "\U000e0041a"} {
		m := labelled{Text: strings.Repeat(text, n/len(text))}.message()
		s := newTestStage(b, `{}`)
		b.Run(fmt.Sprintf("%.12q", text), func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				inspect(b, s, m)
			}
		})
	}
}

func BenchmarkInspectPublishedLists(b *testing.B) {
	for _, server := range lines[publishedServer](b, "servers.jsonl")[:12] {
		m := response("tools/list", string(server.Result))
		s := newTestStage(b, `{}`)
		b.Run(filepath.Base(server.Server), func(b *testing.B) {
			b.SetBytes(int64(m.Size()))
			for b.Loop() {
				inspect(b, s, m)
			}
		})
	}
}
