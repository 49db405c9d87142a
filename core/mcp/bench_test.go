package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

// call returns a tools/call with n bytes of text. The text has a line break every 80 bytes.
func call(n int) []byte {
	text := strings.Repeat(strings.Repeat("lorem ipsum ", 6)+`sit, ok\n`, n/80+1)[:n]
	return []byte(`{"method":"tools/call","params":{"name":"echo","arguments":{"text":"` +
		strings.TrimSuffix(text, `\`) + `"},"_meta":{"progressToken":7}},"jsonrpc":"2.0","id":41}`)
}

// list returns an answer to tools/list with n tools. Each tool has about size bytes.
func list(n, size int) []byte {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","id":41,"result":{"tools":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		start := b.Len()
		fmt.Fprintf(&b, `{"name":"tool_%d","description":"Does what its name says, once, and tells how it went.","inputSchema":{"type":"object","properties":{`, i)
		for p := 0; b.Len()-start < size-150; p++ {
			if p > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"p%d":{"type":"string","description":"What to do with the thing"}`, p)
		}
		b.WriteString(`},"required":["p0"]},"annotations":{"readOnlyHint":true,"title":"A tool"}}`)
	}
	b.WriteString(`]}}`)
	return []byte(b.String())
}

var sizes = []struct {
	name string
	raw  []byte
}{
	{"1KiB-text", call(1 << 10)},
	{"64KiB-text", call(64 << 10)},
	{"1MiB-text", call(1 << 20)},
	{"64KiB-list", list(84, 765)},
	{"765KB-list", list(1000, 765)},
}

func BenchmarkParse(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(s.raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mcp.Parse(s.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSONText measures jsontext for comparison. jsontext only checks that the same messages
// are strict JSON.
func BenchmarkJSONText(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(s.raw)))
			for b.Loop() {
				if !jsontext.Value(s.raw).IsValid() {
					b.Fatal("not valid")
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, s := range sizes {
		m := parse(b, s.raw)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Get("/_meta/progressToken")
				m.Get("/name")
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, s := range sizes {
		m := parse(b, s.raw).WithID("123456")
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, m.Size())
			for b.Loop() {
				buf = m.Append(buf[:0])
			}
		})
	}
}

func BenchmarkEdit(b *testing.B) {
	for _, s := range sizes {
		m := parse(b, s.raw)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Edit(mcp.Set("/_meta/progressToken", []byte("8"))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func parse(t testing.TB, raw []byte) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse(raw)
	if err != nil {
		t.Fatalf("%v\nin %.300s", err, raw)
	}
	return m
}

func BenchmarkRewriteNames(b *testing.B) {
	for _, s := range sizes {
		m := parse(b, s.raw)
		m.Direction = mcp.ToServer
		if m.Kind == mcp.Response {
			m.Method, m.Direction = "tools/list", mcp.ToClient
		}
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := mcp.RewriteNames(m, func(p mcp.NamePlace, name string) (string, error) {
					return "server__" + name, nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
