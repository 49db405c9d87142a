package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// restored returns a pipeline whose server got the given value in a call. Its stages find nothing.
func restored(t *testing.T, values ...pipeline.Redacted) *restoring {
	t.Helper()
	var store pipeline.RedactedValues
	restore := &pipeline.Restore{For: time.Hour, Tools: []string{"mail/use"}}
	newRestoring(&store, restore, values...).send(t)
	r := newRestoring(&store, restore)
	var placeholders []string
	for _, v := range values {
		placeholders = append(placeholders, v.Placeholder)
	}
	if _, err := r.Pass(t.Context(), callWith(t, `{"a":"`+strings.Join(placeholders,
		" ")+`"}`)); err != nil {
		t.Fatal(err)
	}
	return r
}

// result returns a result of the server, for another call than the one with the value.
func result(t *testing.T, body string) *mcp.Message {
	t.Helper()
	m := answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":`+body+`}`)
	m.Principal = identity.FromID("p1")
	return m
}

// TestReturnedValueIsRedacted checks where copies of a restored value are redacted.
func TestReturnedValueIsRedacted(t *testing.T) {
	p := placeholderOf(0)
	notification := func(t *testing.T) *mcp.Message {
		m := parse(t, mcp.ToClient, `{"jsonrpc":"2.0","method":"notifications/message",`+
			`"params":{"data":"`+secretValue+`"}}`)
		m.Principal = identity.FromID("p1")
		return m
	}
	for name, c := range map[string]struct {
		value  string
		m      func(t *testing.T) *mcp.Message
		change func(m *mcp.Message)
		body   string
		want   string // "" if the message stays
	}{
		"a whole text":  {body: `{"x":"` + secretValue + `"}`, want: `{"x":"` + p + `"}`},
		"escaped":       {body: `{"x":"\u0073` + secretValue[1:] + `"}`, want: `{"x":"` + p + `"}`},
		"within a word": {body: `{"x":"ab` + secretValue + `cd"}`, want: `{"x":"ab` + p + `cd"}`},
		"several times": {body: `{"x":["` + secretValue + secretValue + `"]}`,
			want: `{"x":["` + p + p + `"]}`},
		"another text": {body: `{"x":"` + secretValue[1:] + `"}`},
		"a short value": {value: "ab12", body: `{"x":"ab12,xab12"}`,
			want: `{"x":"` + p + `,xab12"}`},
		"a number": {value: "123456", body: `{"x":123456,"y":1234567,"z":123456.5}`,
			want: `{"x":"` + p + `","y":1234567,"z":123456.5}`},
		"an ordinary word": {value: "object", body: `{"x":"object"}`},
		"in a placeholder": {value: "a-a-4",
			body: `{"x":"[secret:a-a-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]"}`},
		"in the second placeholder": {value: "a-a-4",
			body: `{"x":"[secret:b-b-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]` +
				`[secret:a-a-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]"}`},
		"the start of the second placeholder": {value: "[secret:a-a-4",
			body: `{"x":"[secret:b-b-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]` +
				`[secret:a-a-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]"}`},
		"the end of a placeholder": {value: "bbbbbbbbbbbbbbbbbbbbbbbbbb]",
			body: `{"x":"[secret:b-b-4:bbbbbbbbbbbbbbbbbbbbbbbbbb]"}`},
		"a notification": {m: notification,
			want: `{"data":"` + p + `"}`},
		"another session": {body: `{"x":"` + secretValue + `"}`,
			change: func(m *mcp.Message) { m.Session = "s2" }},
		"another principal": {body: `{"x":"` + secretValue + `"}`,
			change: func(m *mcp.Message) { m.Principal = identity.FromID("p2") }},
		"another server": {body: `{"x":"` + secretValue + `"}`,
			change: func(m *mcp.Message) { m.Server = "mail" }},
		"a definition": {body: `{"tools":[{"name":"` + secretValue + `"}]}`,
			change: func(m *mcp.Message) { m.Method = "tools/list" }},
	} {
		t.Run(name, func(t *testing.T) {
			value := c.value
			if value == "" {
				value = secretValue
			}
			r := restored(t, pipeline.Redacted{Placeholder: p, Value: value})
			m := result
			if c.m != nil {
				m = func(t *testing.T, _ string) *mcp.Message { return c.m(t) }
			}
			answer := m(t, c.body)
			if c.change != nil {
				c.change(answer)
			}
			passed, err := r.Pass(t.Context(), answer)
			if err != nil {
				t.Fatal(err)
			}
			want, action := c.want, "modify"
			if want == "" {
				want, action = string(answer.Body()), "pass"
			}
			if got := string(passed.Message().Body()); got != want {
				t.Errorf("the client gets %s, want %s", got, want)
			}
			if o := r.log.last(t); o.Action != action || action == "modify" &&
				(o.Steps[0].Stage != "secrets" || o.Steps[0].Findings[0].Type !=
					pipeline.FindingReturned || len(o.Steps[0].Changed) != 1) {
				t.Errorf("the record is %s with the steps %+v, want %s", o.Action, o.Steps,
					action)
			}
			if seen := strings.Join(r.first.seen, " "); action == "modify" &&
				value == secretValue && strings.Contains(seen, secretValue) {
				t.Errorf("the stages saw %s", seen)
			}
		})
	}
}

// TestIsDistinctive checks which values are redacted wherever their server returns them.
func TestIsDistinctive(t *testing.T) {
	for value, want := range map[string]bool{
		"abcdefghijklmnop": true, // 16 bytes
		"abcdefghijklmno":  false,
		"12345":            false, // a number of up to five digits may be anything
		"00000":            false,
		"99999":            false,
		"000000":           true,
		"999999":           true,
		"12-345":           false,
		"12_345":           false,
		"12.345":           false,
		"12 345":           false,
		"12-34-56":         true,
		"a1b":              false,
		"a1bc":             true, // a digit beside letters
		"ab!":              false,
		"ab!d":             true, // a sign
		"!!!!":             true,
		"aaaa":             false, // words
		"zzzzzzzz":         false,
		"AAAA":             false,
		"ZZZZ":             false,
		"Abcdef":           false,
		"ABCDEF":           false,
		"abcdEf":           true, // a capital within
		"abcEf":            false,
		"aBCDEf":           true,
	} {
		if got := pipeline.IsDistinctive(value); got != want {
			t.Errorf("%q is distinctive: %v, want %v", value, got, want)
		}
	}
}

// TestCopiesWithinWords checks that a short value is redacted only where no letter or digit is
// beside it, and a long one everywhere.
func TestCopiesWithinWords(t *testing.T) {
	p := placeholderOf(0)
	for value, isShort := range map[string]bool{"ab12": true, "abcdEfghijklmno": true,
		"abcdefghijklmnop": false} {
		r := restored(t, pipeline.Redacted{Placeholder: p, Value: value})
		for _, beside := range []string{"0", "9", "a", "z", "A", "Z", "/", ":", "@", "[", "`", "{",
			",", " "} {
			isWord := strings.Contains("09azAZ", beside)
			for _, text := range []string{"X" + beside, beside + "X"} {
				want := strings.Replace(text, "X", value, 1)
				body := `{"x":"` + want + `"}`
				if !isWord || !isShort {
					want = strings.Replace(text, "X", p, 1)
				}
				passed, err := r.Pass(t.Context(), result(t, body))
				if err != nil {
					t.Fatal(err)
				}
				if got := string(passed.Message().Body()); got != `{"x":"`+want+`"}` {
					t.Errorf("%s passes as %s, want the text %s", body, got, want)
				}
			}
		}
	}
}

// TestManyCopiesAndPlaceholders checks a text that a server makes so that a comparison of each copy
// with each placeholder would take very long.
func TestManyCopiesAndPlaceholders(t *testing.T) {
	const copies, n, value = 9_999, 100_000, "a-a-4"
	p, other := placeholderOf(0), "[secret:b-b-4:aaaaaaaaaaaaaaaaaaaaaaaaaa]"
	r := restored(t, pipeline.Redacted{Placeholder: p, Value: value})
	passed, err := r.Pass(t.Context(), result(t, `{"x":"`+strings.Repeat(value+",", copies)+
		strings.Repeat(other, n)+value+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"x":"` + strings.Repeat(p+",", copies) + strings.Repeat(other, n) + p + `"}`
	if string(passed.Message().Body()) != want {
		t.Error("the client gets other texts than the copies and placeholders")
	}
	// With more copies, the message would grow to several times its size.
	for _, body := range []string{`{"x":"` + strings.Repeat(value+",", copies+2) + `"}`,
		`{"x":["` + strings.Repeat(value+`","`, copies+2) + `"]}`} {
		passed, err := r.Pass(t.Context(), result(t, body))
		if d := denied(t, passed, err); !strings.Contains(d.Reason, "more than 10000 copies") {
			t.Errorf("denied by %s: %s", d.Stage, d.Reason)
		}
	}
}

// TestFindingsOfReturnedValuesAreBounded checks how many of the changed texts the record has
// findings of, and that no finding has a long pointer.
func TestFindingsOfReturnedValuesAreBounded(t *testing.T) {
	texts := func(n int) string {
		return `{"x":["` + strings.Join(slices.Repeat([]string{secretValue}, n), `","`) + `"]}`
	}
	named := func(length int) string { // without the "}"
		return `{"` + strings.Repeat("x", length) + `":"` + secretValue + `"`
	}
	for name, c := range map[string]struct {
		body              string
		changed, findings int
	}{
		"100 texts":                     {texts(100), 100, 100},
		"101 texts":                     {texts(101), 101, 100},
		"a pointer of 1024 bytes":       {named(1023) + `}`, 1, 1},
		"a pointer of 1025 bytes":       {named(1024) + `}`, 1, 0},
		"a long pointer before another": {named(1024) + `,"y":"` + secretValue + `"}`, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := restored(t, redactedOnce)
			passed, err := r.Pass(t.Context(), result(t, c.body))
			if err != nil {
				t.Fatal(err)
			}
			body := string(passed.Message().Body())
			if n := strings.Count(body, placeholderOf(0)); n != c.changed ||
				strings.Contains(body, secretValue) {
				t.Errorf("%d texts are redacted, want all %d", n, c.changed)
			}
			if got := len(r.log.last(t).Steps[0].Findings); got != c.findings {
				t.Errorf("the record has %d findings, want %d", got, c.findings)
			}
		})
	}
}

// TestReturnedNameIsDenied checks that a result with a restored value as the name of a member is
// denied.
func TestReturnedNameIsDenied(t *testing.T) {
	r := restored(t, redactedOnce)
	passed, err := r.Pass(t.Context(), result(t, `{"`+secretValue+`":1}`))
	if d := denied(t, passed, err); d.Stage != "secrets" || strings.Contains(d.Reason,
		secretValue) {
		t.Errorf("denied by %s: %s", d.Stage, d.Reason)
	}
}

// TestReturnedValuesAreBounded checks that the value that was restored last is redacted, and that
// the values of one server are bounded.
func TestReturnedValuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 101
		var values []pipeline.Redacted
		for i := range n {
			values = append(values, pipeline.Redacted{Placeholder: placeholderOf(i),
				Value: fmt.Sprintf("s3cr3t-Value-%04d", i)})
		}
		var store pipeline.RedactedValues
		restore := &pipeline.Restore{For: time.Hour}
		newRestoring(&store, restore, values...).send(t)
		r := newRestoring(&store, restore)
		for _, v := range values {
			if _, err := r.Pass(t.Context(), callWith(t, `{"a":"`+v.Placeholder+
				`"}`)); err != nil {
				t.Fatal(err)
			}
		}
		hidden := func() (all []int) {
			for i, v := range values {
				passed, err := r.Pass(t.Context(), result(t, `{"x":"`+v.Value+`"}`))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(passed.Message().Body()), v.Value) {
					all = append(all, i)
				}
			}
			return all
		}
		if got := hidden(); len(got) != 100 || got[0] != 1 {
			t.Errorf("the values %v are redacted, want all but the first", got)
		}
		time.Sleep(time.Hour)
		if got := hidden(); len(got) != 0 {
			t.Errorf("the values %v are redacted after their time", got)
		}
	})
}

// TestBytesOfReturnedValuesAreBounded lets servers get as many bytes as the pipeline remembers.
// With one more value, the pipeline forgets all values of the server that was the first to get any.
func TestBytesOfReturnedValuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			sealing = 28      // bytes that a value gets by its encryption
			largest = 4096    // bytes of an encrypted value
			all     = 8 << 20 // bytes of all encrypted values
			each    = 100     // values of one server
			servers = all/largest/each + 1
		)
		var store pipeline.RedactedValues
		restore := &pipeline.Restore{For: time.Hour}
		valueOf := func(i, length int) pipeline.Redacted {
			v := fmt.Sprintf("s3cr3t-Value-%04d-", i)
			return pipeline.Redacted{Placeholder: placeholderOf(i),
				Value: v + strings.Repeat("x", length-len(v))}
		}
		// get lets a server send values and, if it isRestored, get them back.
		get := func(server int, isRestored bool, values ...pipeline.Redacted) {
			t.Helper()
			m := result(t, `{"text":"x"}`)
			m.Server = fmt.Sprint(server)
			if _, err := newRestoring(&store, restore, values...).Pass(t.Context(),
				m); err != nil {
				t.Fatal(err)
			}
			if !isRestored {
				return
			}
			var placeholders []string
			for _, v := range values {
				placeholders = append(placeholders, v.Placeholder)
			}
			m = callWith(t, `{"a":"`+strings.Join(placeholders, " ")+`"}`)
			m.Server = fmt.Sprint(server)
			passed, err := newRestoring(&store, restore).Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			written := string(passed.Restoration().Apply(passed.Message()).Body())
			if !strings.Contains(written, values[0].Value) {
				t.Fatalf("the server %d does not get its value", server)
			}
			time.Sleep(time.Second)
		}
		want := func(isRedacted bool, server int, v pipeline.Redacted) {
			t.Helper()
			m := result(t, `{"x":"`+v.Value+`"}`)
			m.Server = fmt.Sprint(server)
			passed, err := newRestoring(&store, restore).Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if got := !strings.Contains(string(passed.Message().Body()), v.Value); got !=
				isRedacted {
				t.Errorf("a value of %d bytes of the server %d is redacted: %v, want %v",
					len(v.Value), server, got, isRedacted)
			}
		}
		tooLong := valueOf(0, largest-sealing+1)
		get(1000, true, tooLong)
		want(false, 1000, tooLong)
		get(1001, false, valueOf(0, 20)) // a server that gets nothing back

		for server := range servers {
			count := min(each, all/largest-server*each)
			var values []pipeline.Redacted
			for i := range count {
				values = append(values, valueOf(i, largest-sealing))
			}
			get(server, true, values...)
		}
		for server := range servers {
			want(true, server, valueOf(0, largest-sealing))
		}
		get(1002, true, valueOf(0, 20))
		want(true, 1002, valueOf(0, 20))
		for server := range servers {
			want(server > 0, server, valueOf(0, largest-sealing))
			want(server > 0, server, valueOf(40, largest-sealing))
		}
	})
}

// BenchmarkRestore measures a call and its result, without and with values to restore.
func BenchmarkRestore(b *testing.B) {
	text := strings.Repeat("a line of text, like most of them; see 2.\\n", 64<<10/43)
	off := pipeline.New(discard{}, pipeline.Options{})
	stage := pipeline.StageConfig{Name: "secrets", Stage: &redactor{},
		Wants:   pipeline.Wants{Methods: []string{"none"}},
		Restore: &pipeline.Restore{For: time.Hour}}
	for name, c := range map[string]struct {
		p         *pipeline.Pipeline
		arguments string
		values    int
	}{
		"off":             {off, `{"a":"x"}`, 0},
		"no placeholder":  {pipeline.New(discard{}, pipeline.Options{}, stage), `{"a":"x"}`, 0},
		"one restored":    {nil, `{"a":"` + placeholderOf(0) + `"}`, 1},
		"ten got before":  {nil, `{"a":"x"}`, 10},
		"100 got before":  {nil, `{"a":"x"}`, 100},
		"none got before": {nil, `{"a":"x"}`, 0},
	} {
		b.Run(name, func(b *testing.B) {
			store := &pipeline.RedactedValues{}
			p := c.p
			if p == nil {
				p = pipeline.New(discard{}, pipeline.Options{RedactedValues: store}, stage)
			}
			pass := func(raw string, to mcp.Direction, kind string) {
				m, err := mcp.Parse([]byte(raw))
				if err != nil {
					b.Fatal(err)
				}
				m.Direction, m.Session, m.Server, m.Method, m.Name = to, "s1", "files",
					"tools/call", "use"
				if _, err := p.Pass(b.Context(), m); err != nil {
					b.Fatal(kind, err)
				}
			}
			var values []pipeline.Redacted
			for i := range c.values {
				values = append(values, pipeline.Redacted{Placeholder: placeholderOf(i),
					Value: fmt.Sprintf("s3cr3t-Value-%04d", i)})
			}
			if len(values) > 0 {
				first := pipeline.New(discard{}, pipeline.Options{RedactedValues: store},
					pipeline.StageConfig{Name: "secrets", Stage: &redactor{values: values},
						Restore: &pipeline.Restore{For: time.Hour}})
				m, _ := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":7,"result":{"text":"x"}}`))
				m.Direction, m.Session, m.Server, m.Method = mcp.ToClient, "s1", "files",
					"tools/call"
				if _, err := first.Pass(b.Context(), m); err != nil {
					b.Fatal(err)
				}
				for _, v := range values {
					pass(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"use",`+
						`"arguments":{"a":"`+v.Placeholder+`"}}}`, mcp.ToServer, "first call")
				}
			}
			for b.Loop() {
				pass(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"use",`+
					`"arguments":`+c.arguments+`}}`, mcp.ToServer, "call")
				pass(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"`+text+
					`"}]}}`, mcp.ToClient, "result")
			}
		})
	}
}

// discard is a recorder that keeps nothing.
type discard struct{}

func (discard) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }
