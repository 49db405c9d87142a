package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// ordinaryTexts returns texts such as tools return.
func ordinaryTexts(b *testing.B) map[string]string {
	root := goroot(b)
	read := func(globs ...string) string {
		var all strings.Builder
		for _, glob := range globs {
			paths, _ := filepath.Glob(filepath.Join(root, glob))
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					b.Fatal(err)
				}
				all.Write(text)
			}
		}
		return strings.ToValidUTF8(all.String(), "?")
	}
	return map[string]string{"prose": read("doc/*.md", "doc/*.html", "README.md", "CONTRIBUTING.md",
		"SECURITY.md"), "code": read("src/net/http/[a-s]*.go", "src/go/types/*.go")}
}

func BenchmarkInspect(b *testing.B) {
	s := newStage(b, `{}`)
	for name, text := range ordinaryTexts(b) {
		for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
			if len(text) < n {
				continue
			}
			var all []*mcp.Message // one for each part of the text
			for at := 0; at+n <= len(text) && len(all) < 50; at += n {
				m := result(text[at : at+n])
				if v := inspect(b, s, m); len(v.Findings) == 0 {
					all = append(all, m)
				}
			}
			if len(all) == 0 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := s.Inspect(b.Context(), all[i%len(all)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	item := `{"id":4711,"name":"quarterly report","path":"/srv/data/reports/2026/q3.md",` +
		`"size":18233,"owner":"jo","modified":"2026-08-01T10:00:00Z","tags":["a","b"]},`
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		m := mcp.NewResponse("1",
			[]byte(`{"structuredContent":{"items":[`+strings.TrimSuffix(strings.Repeat(item,
				n/len(item)), ",")+`]}}`))
		b.Run(fmt.Sprintf("members/%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if v, err := s.Inspect(b.Context(), m); err != nil || len(v.Findings) > 0 {
					b.Fatal(v, err)
				}
			}
		})
	}
	for name, text := range map[string]string{"hostile/assignments": "key=aaaaaaaaaaaaaaa1 ",
		"hostile/names": "access_token_secret_key: ",
		"hostile/heads": "ghp_ AKIA sk_live_ xoxb- ey -----BEGIN PRIVATE KEY----- curl "} {
		m := result(strings.Repeat(text, 64<<10/len(text)))
		b.Run(name+"/64KiB", func(b *testing.B) {
			b.SetBytes(64 << 10)
			for b.Loop() {
				if _, err := s.Inspect(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		newStage(b, `{}`)
	}
}
