package builtin_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins/builtin"
	"gatekit/plugins/sdk"
)

// BenchmarkScanners measures the plugins that read all texts, each of them and all three one after
// the other, on texts of several kinds. The texts have few findings or none.
func BenchmarkScanners(b *testing.B) {
	var stages []sdk.Stage
	var names []string
	for _, p := range builtin.All() {
		switch p.Name {
		case "injection", "pii", "secrets":
			stage, err := p.New([]byte("{}"))
			if err != nil {
				b.Fatal(err)
			}
			stages, names = append(stages, stage), append(names, p.Name)
		}
	}
	texts := benchTexts(b)
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, text := range texts {
			messages := benchMessages(text, size)
			run := func(name string, stages ...sdk.Stage) {
				b.Run(fmt.Sprintf("%dKiB/%s/%s", size>>10, text.name, name), func(b *testing.B) {
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						m := messages[i%len(messages)]
						if len(stages) > 1 { // as package sdk does
							m = m.WithLeaves()
						}
						for _, s := range stages {
							if _, err := s.Inspect(b.Context(), m); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
			for i, s := range stages {
				run(names[i], s)
			}
			run("all", stages...)
		}
	}
}

// benchText is a text of one kind.
type benchText struct {
	name, text string
	isJSON     bool // the text is the items of a structured result
}

// benchTexts returns the texts, which come from the Go installation. It skips the benchmark if
// there is none.
func benchTexts(b *testing.B) []benchText {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("no go command: ", err)
	}
	read := func(globs ...string) string {
		var all strings.Builder
		for _, glob := range globs {
			paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), glob))
			if err != nil || len(paths) == 0 {
				b.Skip("no sources of Go on this machine: ", glob, err)
			}
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					b.Skip("no sources of Go on this machine: ", err)
				}
				all.Write(text)
			}
		}
		return strings.ToValidUTF8(all.String(), "?")
	}
	blob := base64.StdEncoding.EncodeToString([]byte(read("src/testdata/*.txt"))[:64<<10])
	return []benchText{
		// the text of test/bench
		{name: "line", text: "The quick brown fox jumps over the lazy dog, while 12 boxing " +
			"wizards watch it.\n"},
		{name: "prose", text: read("src/testdata/Isaac.Newton-Opticks.txt")},
		{name: "docs", text: read("doc/*.html", "README.md", "CONTRIBUTING.md", "SECURITY.md")},
		{name: "code", text: read("src/net/http/[a-s]*.go", "src/go/types/*.go")},
		{name: "jsontext", text: jsonItem},
		{name: "members", text: jsonItem, isJSON: true},
		{name: "base64", text: blob},
		{name: "scripts", text: otherScripts},
	}
}

const jsonItem = `{"id":4711,"name":"quarterly report","path":"/srv/data/reports/2026/q3.md",` +
	`"size":18233,"owner":"jo","modified":"2026-08-01T10:00:00Z","tags":["a","b"]},`

const otherScripts = "Быстрая коричневая лиса прыгает через ленивую собаку, а двенадцать " +
	"волшебников смотрят.\n敏捷的棕色狐狸跳过懒狗，十二个巫师在旁边观看。今天天气很好，我们去公园散步。\n" +
	"素早い茶色の狐がのろまな犬を飛び越え、十二人の魔法使いが見ている。\n" +
	"다람쥐 헌 쳇바퀴에 타고파. 날씨가 좋아서 공원에 갔습니다.\n" +
	"الثعلب البني السريع يقفز فوق الكلب الكسول بينما يشاهده اثنا عشر ساحرا.\n" +
	"Größere Übungen für müde Männer: Zwölf Boxkämpfer jagen Viktor quer über den großen Deich.\n" +
	"Voix ambiguë d’un cœur qui au zéphyr préfère les jattes de kiwis.\n"

// benchMessages returns results with n bytes of the text, one for each part of it, up to 30.
func benchMessages(t benchText, n int) (all []*mcp.Message) {
	text := t.text
	for len(text) < n {
		text += t.text
	}
	for at := 0; at+n <= len(text) && len(all) < 30; at += n {
		part := strings.ToValidUTF8(text[at:at+n], "?")
		body := `{"content":[{"type":"text","text":` + string(mcp.Quote(part)) + `}]}`
		if t.isJSON {
			part = part[:strings.LastIndex(part, "},{")+1]
			body = `{"structuredContent":{"items":[` + part[strings.Index(part, "{"):] + `]}}`
		}
		m := mcp.NewResponse("1", []byte(body))
		m.Direction, m.Method, m.Server = mcp.ToClient, "tools/call", "files"
		all = append(all, m)
	}
	return all
}
