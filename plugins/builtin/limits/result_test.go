package limits_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// small is a configuration with small limits.
const small = `{"result":{"bytes":1000,"media":2000}}`

// cutMessage inspects m, which must be modified, and returns the modified message.
func cutMessage(t testing.TB, s sdk.Stage, m *mcp.Message) (*mcp.Message, sdk.Verdict) {
	t.Helper()
	v := inspect(t, s, m)
	if v.Action != pipeline.Modify {
		t.Fatalf("got the action %d (%q), want modify", v.Action, v.Reason)
	}
	next, err := m.Edit(v.Edits...)
	if err != nil {
		t.Fatalf("apply the edits: %v", err)
	}
	if _, err := mcp.Parse(next.Append(nil)); err != nil {
		t.Fatalf("the modified message is invalid: %v", err)
	}
	return next, v
}

func TestResultsAreCut(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	note := func(left, total string) string {
		return "[cut by gatekit: " + left + " of " + total + " bytes left out]"
	}
	textNote := func(left, total string) string {
		return `{"type":"text","text":"` + note(left, total) + `"}`
	}
	const frame = len(`{"type":"text","text":""}`) - 2 // 23: without the two quotes of the text
	for _, c := range []struct{ name, method, body, want, reason, findings string }{
		{"text", "tools/call", `{"content":[{"type":"text","text":"` + x(5000) +
			`"}],"_meta":{"a": 1.0}}`,
			`{"content":[{"type":"text","text":"` + x(1000-frame) + `"},` + textNote("4,023",
				"5,023") + `],"_meta":{"a": 1.0}}`,
			"result: 4,023 of 5,023 bytes left out", "/content/0"},
		{"second text, and the items after it",
			"tools/call", `{"content":[ {"type":"text", "text":"a"},{"type":"text","text":"` +
				x(2000) + `"},{"type":"text","text":"b"}]}`,
			`{"content":[{"type":"text", "text":"a"},{"type":"text","text":"` + x(1000-2*frame-2) +
				`"},` + textNote("1,072", "2,072") + `]}`,
			"result: 1,072 of 2,072 bytes left out", "/content/1 /content/2"},
		{"text at the limit, with an escape", "tools/call",
			`{"content":[{"type":"text","text":"\u20ac` + x(1000-frame-3) +
				`"},{"type":"text","text":"b"}]}`,
			`{"content":[{"type":"text","text":"\u20ac` + x(1000-frame-3) + `"},` +
				textNote("24", "1,024") + `]}`,
			"result: 24 of 1,024 bytes left out", "/content/1"},
		{"cut between two characters", "tools/call", `{"content":[{"type":"text","text":"` +
			strings.Repeat("€", 500) + `"}]}`,
			`{"content":[{"type":"text","text":"` + strings.Repeat("€", (1000-frame)/3) + `"},` +
				textNote("525", "1,523") + `]}`,
			"result: 525 of 1,523 bytes left out", "/content/0"},
		{"image",
			"tools/call", `{"content":[{"type":"image","mimeType":"image/png","data":"` + x(3000) +
				`"},{"type":"text","text":"a"}]}`,
			`{"content":[{"type":"text","text":"a"},` + textNote("3,047", "3,071") + `]}`,
			"result: 3,047 of 3,071 bytes left out", "/content/0"},
		{"text of an embedded resource",
			"tools/call", `{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"` +
				x(2000) + `"}}]}`,
			`{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"` + x(942) +
				`"}},` + textNote("1,058", "2,058") + `]}`,
			"result: 1,058 of 2,058 bytes left out", "/content/0"},
		{"structured content", "tools/call",
			`{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":"` + x(2000) +
				`"},"isError":false}`,
			`{"content":[{"type":"text","text":"a"},` + textNote("2,008",
				"2,032") + `],"isError":true}`,
			"result: 2,008 of 2,032 bytes left out", "/structuredContent"},
		{"only structured content", "tools/call", `{"structuredContent":{"a":"` + x(2000) + `"}}`,
			`{"content":[` + textNote("2,008", "2,008") + `],"isError":true}`,
			"result: 2,008 of 2,008 bytes left out", "/structuredContent"},
		{"block with other large members",
			"tools/call", `{"content":[{"type":"text","text":"a","_meta":{"x":"` + x(2000) +
				`"}}]}`,
			`{"content":[` + textNote("2,041", "2,041") + `]}`,
			"result: 2,041 of 2,041 bytes left out", "/content/0"},
		{"large resource link",
			"tools/call", `{"content":[{"type":"resource_link","uri":"file:///a","name":"a","description":"` + x(2000) + `"},17]}`,
			`{"content":[17,` + textNote("2,070", "2,072") + `]}`,
			"result: 2,070 of 2,072 bytes left out", "/content/0"},
		{"resource", "resources/read", `{"contents":[{"uri":"file:///a","text":"` + x(2000) +
			`"}]}`,
			`{"contents":[{"uri":"file:///a","text":"` +
				x(1000-len(`{"uri":"file:///a","text":}`)) +
				`"},{"uri":"file:///a","mimeType":"text/plain","text":"` + note("1,027",
				"2,027") + `"}]}`,
			"result: 1,027 of 2,027 bytes left out", "/contents/0"},
		{"blob", "resources/read", `{"contents":[{"uri":"file:///a","blob":"` + x(2004) + `"}]}`,
			`{"contents":[{"uri":"file:///a","mimeType":"text/plain","text":"` + note("2,031",
				"2,031") + `"}]}`,
			"result: 2,031 of 2,031 bytes left out", "/contents/0"},
		{"prompt", "prompts/get",
			`{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"` +
				x(2000) + `"}}]}`,
			`{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"` +
				x(1000-len(`{"role":"user","content":{"type":"text","text":}}`)) +
				`"}},{"role":"user","content":` + textNote("1,049", "2,049") + `}]}`,
			"result: 1,049 of 2,049 bytes left out", "/messages/0"},
		{"result of a task", "tasks/get",
			`{"taskId":"t","status":"completed","result":{"content":[{"type":"text","text":"` +
				x(2000) + `"}]}}`,
			`{"taskId":"t","status":"completed","result":{"content":[{"type":"text","text":"` +
				x(1000-frame) + `"},` + textNote("1,023", "2,023") + `]}}`,
			"result: 1,023 of 2,023 bytes left out", "/result/content/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, v := cutMessage(t, newStage(t, small), result(c.method, c.body))
			if got := string(next.Body()); got != c.want {
				t.Errorf("got\n%.300s\n...%s\nwant\n%.300s\n...%s", got, got[max(0, len(got)-200):],
					c.want, c.want[max(0, len(c.want)-200):])
			}
			var pointers []string
			for _, f := range v.Findings {
				pointers = append(pointers, f.Pointer)
			}
			if got := strings.Join(pointers, " "); v.Reason != c.reason || got != c.findings {
				t.Errorf("got the reason %q and findings at %s, want %q and %s", v.Reason, got,
					c.reason, c.findings)
			}
			if v := inspect(t, newStage(t, strings.Replace(small, `{"bytes"`,
				`{"action":"deny","bytes"`, 1)),
				result(c.method, c.body)); v.Action != pipeline.Deny || !strings.HasPrefix(v.Reason,
				"result: ") {
				t.Errorf("with the action deny: got the action %d (%q), want deny", v.Action,
					v.Reason)
			}
		})
	}
}

func TestSmallResultsAreUnchanged(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ name, method, body string }{
		{"text at the limit", "tools/call", `{"content":[{"type":"text","text":"` +
			x(1000-23) + `"}]}`},
		{"text with escapes",
			"tools/call", `{"content":[{"type":"text","text":"` + strings.Repeat(`\u20ac`,
				300) + `"}]}`},
		{"image", "tools/call", `{"content":[{"type":"image","mimeType":"image/png","data":"` +
			x(2000) + `"}]}`},
		{"text and structured content",
			"tools/call", `{"content":[{"type":"text","text":"` + x(900) +
				`"}],"structuredContent":{"result":"` + x(900) + `"}}`},
		{"block without text at the limit", "tools/call",
			`{"content":[{"type":"resource_link","uri":"` + x(1000-33) + `"}]}`},
		{"structured content at the limit", "tools/call", `{"structuredContent":{"a":"` +
			x(1000-8) + `"}}`},
		{"other members at the limit", "tools/call", `{"content":[],"_meta":{"x":"` + x(1000-29) +
			`"}}`},
		{"list", "tools/list", `{"tools":[{"name":"a","description":"` + x(5000) + `"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireAllowed(t, newStage(t, small),
				result(c.method, c.body))
		})
	}
	for name, body := range map[string]string{
		"message and data of an error at the limit": `{"code":1,"message":"` + x(1000) +
			`","data":"` + x(1000-2) + `"}`,
		"other members of an error at the limit": `{"code":1,"message":"no","x":"` + x(1000-28) +
			`"}`,
	} {
		t.Run(name, func(t *testing.T) {
			requireAllowed(t, newStage(t, small), errorResponse(body))
		})
	}
	t.Run("response of the client", func(t *testing.T) {
		m := result("sampling/createMessage",
			`{"role":"assistant","content":{"type":"text","text":"`+x(5000)+`"}}`)
		m.Direction = mcp.ToServer
		requireAllowed(t, newStage(t, small), m)
	})
}

func TestTaskInANotificationIsCut(t *testing.T) {
	m := mcp.NewNotification("notifications/tasks", []byte(`{"taskId":"t","result":{"content":[`+
		`{"type":"text","text":"`+strings.Repeat("x", 2000)+`"}]}}`))
	m.Direction = mcp.ToClient
	if _, v := cutMessage(t, newStage(t, small), withFields(m, nil)); v.Reason !=
		"result: 1,023 of 2,023 bytes left out" {
		t.Errorf("got the reason %q, want the number of bytes", v.Reason)
	}
}

func TestFindingsAreLimited(t *testing.T) {
	for items, want := range map[int]int{64: 64, 65: 64} {
		image := `{"type":"image","data":"` + strings.Repeat("x", 2001) + `"}`
		v := inspect(t, newStage(t, small), result("tools/call", `{"content":[`+
			strings.TrimSuffix(strings.Repeat(image+",", items), ",")+`]}`))
		if len(v.Findings) != want {
			t.Errorf("%d images: got %d findings, want %d", items, len(v.Findings), want)
		}
	}
}

func TestResultThatCannotBeCutIsDenied(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ name, body, want string }{
		{"_meta", `{"content":[],"_meta":{"x":"` + long + `"}}`,
			"result: 5,029 bytes besides the content cannot be cut; the limit is 1,000"},
		{"unknown member", `{"content":[],"Contents":"` + long + `"}`,
			"result: 5,026 bytes besides the content cannot be cut; the limit is 1,000"},
		{"content that is not an array", `{"content":"` + long + `"}`,
			"result: 5,014 bytes besides the content cannot be cut; the limit is 1,000"},
		{"content that is not an array, and structured content",
			`{"content":"x","structuredContent":"` + long + `"}`,
			"result: 5,002 of 5,002 bytes exceed the limit"},
		{"questions to the client", `{"resultType":"input_required","inputRequests":{"a":"` + long +
			`"}}`,
			"result: 5,056 bytes besides the content cannot be cut; the limit is 1,000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireDenied(t, newStage(t, small), result("tools/call", c.body), c.want,
				"result-size")
		})
	}
}

func TestErrorsAreCut(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ name, body, want string }{
		{"message", `{"code":-32603,"message":"` + x(3000) + `","data":{"a":1}}`,
			`{"code":-32603,"message":"` + x(1000) +
				` [cut by gatekit: 2,000 of 3,007 bytes left out]","data":{"a":1}}`},
		{"data", `{"code":-32603,"message":"no","data":"` + x(3000) + `"}`,
			`{"code":-32603,"message":"no [cut by gatekit: 3,002 of 3,004 bytes left out]"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, _ := cutMessage(t, newStage(t, small), errorResponse(c.body))
			if got := string(next.Body()); got != c.want {
				t.Errorf("got %.100s, want %.100s", got, c.want)
			}
		})
	}
	t.Run("message at the limit, and data", func(t *testing.T) {
		v := inspect(t, newStage(t, small), errorResponse(`{"code":1,"message":"`+x(1000)+
			`","data":"`+x(3000)+`"}`))
		if len(v.Findings) != 1 || v.Findings[0].Pointer != "/data" {
			t.Errorf("got the findings %v, want one at /data", v.Findings)
		}
	})
	t.Run("unknown member", func(t *testing.T) {
		requireDenied(t, newStage(t, small), errorResponse(`{"code":1,"message":"no","x":"`+x(3000)+
			`"}`),
			"result: 3,028 bytes of an error besides its message and data cannot be cut; "+
				"the limit is 1,000", "result-size")
	})
}

// FuzzModifiedResultIsWithinTheLimit checks that a modified result is not larger than its limits
// and the note together.
func FuzzModifiedResultIsWithinTheLimit(f *testing.F) {
	f.Add("tools/call", []byte(`{"content":[{"type":"text","text":"\ud83d€\u0000"}]}`), 3000)
	f.Add("prompts/get", []byte(
		`{"messages":[{"content":[{"text":"a"}]},{"content":{"text":1,"data":"x"}}]}`), 900)
	f.Add("tasks/get", []byte(`{"result":{"content":null,"structuredContent":[]}}`), 5)
	f.Fuzz(func(t *testing.T, method string, body []byte, n int) {
		// PAD in the body becomes a text of n bytes.
		body = []byte(strings.ReplaceAll(string(body), "PAD", strings.Repeat("x",
			min(max(n, 0), 5000))))
		m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + string(body) + `}`))
		if err != nil || m.Kind != mcp.Response {
			return
		}
		m.Direction, m.Method, m.Name = mcp.ToClient, method, "x"
		s := newStage(t, small)
		v := inspect(t, s, withFields(m, nil))
		switch v.Action {
		case pipeline.Allow, pipeline.Deny:
			if len(v.Edits) > 0 {
				t.Errorf("got edits with the action %d, want none", v.Action)
			}
		case pipeline.Modify:
			next, _ := cutMessage(t, s, m)
			// The text, the structured content and everything else have at most 1000 bytes each,
			// and each byte becomes at most six bytes of JSON. The media have at most 2000 bytes,
			// and the note at most 200.
			if len(next.Body()) > 3*6*1000+2000+200 {
				t.Errorf("the modified result has %d bytes, want at most 20,200", len(next.Body()))
			}
		}
	})
}

func BenchmarkInspect(b *testing.B) {
	ordinary := func(n int) string {
		const line = "The quick brown fox reads \\\"files\\\" — and, now and then, writes one: " +
			"/srv/data/report-2026.txt\\n"
		return strings.Repeat(line, n/len(line)+1)[:n/len(line)*len(line)]
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}} {
		text := ordinary(size.n)
		b.Run("call/"+size.name, func(b *testing.B) {
			s := newStage(b, `{"calls":[{"per":"tool","rate":1000000,"burst":1000000,"concurrent":4096}],"loop":{"within":"1s"}}`)
			calls := make([]*mcp.Message, 64)
			for i := range calls {
				calls[i] = call("write", fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, text))
			}
			answer := result("tools/call", `{"content":[]}`)
			b.SetBytes(int64(len(text)))
			for i := 0; b.Loop(); i++ {
				if v, err := s.Inspect(b.Context(), calls[i%len(calls)]); err != nil ||
					v.Action == pipeline.Deny && v.Findings[0].Type != "loop" {
					b.Fatalf("got %+v, %v", v, err)
				}
				if _, err := s.Inspect(b.Context(), answer); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, c := range []struct{ name, config string }{{"fits", `{"result":{"bytes":10000000}}`},
			{"cut", `{"result":{"bytes":1000}}`}} {
			b.Run("result/"+c.name+"/"+size.name, func(b *testing.B) {
				s := newStage(b, c.config)
				m := result("tools/call", `{"content":[{"type":"text","text":"`+text+`"}]}`)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if v, err := s.Inspect(b.Context(), m); err != nil ||
						v.Action == pipeline.Deny {
						b.Fatalf("got %+v, %v", v, err)
					}
				}
			})
		}
	}
}
