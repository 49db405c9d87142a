package format_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gatekit/audit"
	"gatekit/audit/format"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))

// recorded writes the outcomes to a real log, and returns the records of the log.
func recorded(t testing.TB, outcomes ...pipeline.Outcome) (records []audit.Record) {
	t.Helper()
	var out bytes.Buffer
	l, err := audit.Open(audit.Options{Writer: &out, Bodies: audit.BodiesRedacted})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, o := range outcomes {
		if _, err := l.Record(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for line := range bytes.Lines(out.Bytes()) {
		r, err := audit.ParseRecord(bytes.TrimSuffix(bytes.Clone(line), []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

func message(t testing.TB, text string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m.Direction, m.Session, m.Exchange, m.Principal, m.Server, m.Name = mcp.ToServer,
		"s1", "e1", identity.FromID("ann"),
		"files", "read"
	return m
}

// outcomes returns ten outcomes of ten kinds. Tests refer to an outcome by its index.
func outcomes(t testing.TB) []pipeline.Outcome {
	call := message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"path":"/etc"}}}`)
	result := message(
		t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"key AKIA"}]}}`)
	result.Direction, result.Method = mcp.ToClient, "tools/call"
	clean, err := result.Edit(mcp.Set("/content/0/text", []byte(`"key [redacted]"`)))
	if err != nil {
		t.Fatal(err)
	}
	sampling := message(t,
		`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
	sampling.Direction, sampling.Principal, sampling.Name = mcp.ToClient, nil, ""
	list := message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	list.Name = ""
	progress := message(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
	progress.Direction, progress.Session, progress.Principal = mcp.ToClient, "", nil
	callError := message(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`)
	callError.Direction, callError.Method = mcp.ToClient, "tools/call"
	toolFailed := message(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`)
	toolFailed.Direction, toolFailed.Method = mcp.ToClient, "tools/call"
	return []pipeline.Outcome{
		{Time: at, Before: &mcp.Message{}, Action: "start", Reason: "version 1"},
		{Time: at, Before: list, After: list, Action: "pass", Duration: 250 * time.Microsecond},
		{Time: at, Before: call, Action: "deny", Reason: "outside of the roots",
			Duration: 1234 * time.Microsecond,
			Steps: []pipeline.Step{{Stage: "secrets", Action: "pass"}, {Stage: "roots/traversal",
				Action: "deny", Reason: "outside of the roots", Duration: 900 * time.Microsecond}}},
		{Time: at, Before: result, After: clean, Action: "modify", Reason: "a key",
			Duration: 2 * time.Millisecond,
			Steps: []pipeline.Step{{Stage: "secrets", Action: "modify", Reason: "a key",
				Findings: []pipeline.Finding{{Type: "aws-access-key",
					Pointer: "/content/0/text"}}}}},
		{Time: at, Before: sampling, Action: "ask", Reason: "a human decides",
			Steps: []pipeline.Step{{Stage: "sampling/gate", Action: "ask"}}},
		{Time: at, Before: progress, After: progress, Action: "skip",
			Steps: []pipeline.Step{{Stage: "pii", Action: "skip", Reason: "time-out"}}},
		{Time: at, Before: callError, After: callError, Action: "pass"},
		{Time: at, Before: toolFailed, After: toolFailed, Action: "pass"},
		{Time: at, Before: call, Action: "deny", Err: errors.New("plugin secrets: time-out")},
		{Time: at, Before: &mcp.Message{Server: "files"}, Action: "server lost", Reason: "it ended",
			Err: errors.New("exit status 1")},
	}
}

func encoder(t testing.TB, name string) format.Encoder {
	t.Helper()
	f, err := format.New(name, format.Options{Version: "1.0"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// written returns the records in the format with this name.
func written(t testing.TB, name string, records []audit.Record) string {
	t.Helper()
	var out bytes.Buffer
	w := format.NewWriter(&out, encoder(t, name), false)
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestFormatsEncodeEveryKindOfRecord(t *testing.T) {
	records := recorded(t, outcomes(t)...)
	t.Run("jsonl is the log byte for byte", func(t *testing.T) {
		var want strings.Builder
		for _, r := range records {
			want.Write(r.Line)
			want.WriteByte('\n')
		}
		if got := written(t, "jsonl", records); got != want.String() {
			t.Errorf("got\n%s\nwant\n%s", got, want.String())
		}
	})
	t.Run("text", func(t *testing.T) {
		want := `2026-11-21 11:00:00.123Z #1    start      version 1
2026-11-21 11:00:00.123Z #2    pass       to_server  files  tools/list  ann  250µs
2026-11-21 11:00:00.123Z #3    deny       to_server  files  tools/call read: outside of the roots [roots/traversal]  ann  1.234ms
2026-11-21 11:00:00.123Z #4    modify     to_client  files  tools/call read → response: a key [secrets]  ann  2ms
2026-11-21 11:00:00.123Z #5    ask        to_client  files  sampling/createMessage: a human decides [sampling/gate]  s1
2026-11-21 11:00:00.123Z #6    skip       to_client  files  notifications/progress read [pii]
2026-11-21 11:00:00.123Z #7    pass       to_client  files  tools/call read → error (code -32000)  ann
2026-11-21 11:00:00.123Z #8    pass       to_client  files  tools/call read → response (failed)  ann
2026-11-21 11:00:00.123Z #9    deny       to_server  files  tools/call read: plugin secrets: time-out  ann
2026-11-21 11:00:00.123Z #10   server lost  files  it ended: exit status 1
`
		if got := written(t, "text", records); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("csv", func(t *testing.T) {
		rows, err := csv.NewReader(strings.NewReader(written(t, "csv", records))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rows[0], format.Columns()) {
			t.Errorf("the header is %q, want %q", rows[0], format.Columns())
		}
		for i, want := range []string{
			"EVENT|start||", "REQUEST|pass||", "SECURITY_BLOCK|deny|roots/traversal|",
			"RESPONSE_MODIFIED|modify|secrets|aws-access-key /content/0/text",
			"SECURITY_BLOCK|ask|sampling/gate|", "NOTIFICATION|skip|pii|",
			"ERROR|pass||", "RESPONSE|pass||", "SECURITY_BLOCK|deny||", "EVENT|server lost||",
		} {
			row := rows[i+1]
			if got := strings.Join([]string{row[1], row[6], row[19], row[20]}, "|"); got != want {
				t.Errorf("row %d is %s, want %s", i+1, got, want)
			}
		}
		if row := rows[3]; row[0] != "2026-11-21T11:00:00.123456Z" || row[10] != "1.234" ||
			row[5] != "read" || row[9] != "outside of the roots" || row[15] != "3" {
			t.Errorf("the row of the denial is %q, want its time, duration, tool, reason and seq",
				row)
		}
		for i, want := range map[int]string{4: "success|", 7: "error|-32000", 8: "error|"} {
			if got := rows[i][11] + "|" + rows[i][12]; got != want {
				t.Errorf("row %d has status and code %s, want %s", i, got, want)
			}
		}
	})
}

func TestIsModifiedWithoutHashes(t *testing.T) {
	same := audit.Body{Size: 7}
	for _, c := range []struct {
		name   string
		record audit.Record
		want   bool
	}{
		{"the message passed", audit.Record{Action: "pass", Before: &same, After: &same}, false},
		{"the message was modified to the same size", audit.Record{Action: "modify", Before: &same,
			After: &same}, true},
		{"a stage modified the message, and the record has another action", audit.Record{
			Action: "skip", Before: &same, After: &same, Steps: []audit.Step{{Stage: "a",
				Action: "modify", Changed: []string{"/x"}}, {Stage: "b", Action: "skip"}}}, true},
		{"the original body has a keyed hash", audit.Record{Action: "pass",
			Before: &audit.Body{Size: 7, HMAC: "aa"}, After: &audit.Body{Size: 7}}, true},
		{"the message was not forwarded", audit.Record{Action: "deny", Before: &same}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := format.IsModified(&c.record); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestShortLineKeepsResult(t *testing.T) {
	code, failed := recorded(t, outcomes(t)...)[6], recorded(t, outcomes(t)...)[7]
	modified := recorded(t, outcomes(t)...)[3]
	f := format.ShortEncoder(encoder(t, "jsonl"))
	for _, c := range []struct {
		record audit.Record
		want   string
	}{{code, `"code":-32000,`}, {failed, `"failed":true,`}, {modified, `"hmac":"`}} {
		if got := string(f.Append(nil, &c.record)); !strings.Contains(got, c.want) ||
			!strings.Contains(got, `"short":`) || strings.Contains(got, `"body":`) {
			t.Errorf("got %s, want %s in it, and no body", got, c.want)
		}
	}
}

func TestJSONLWithEscapesIsTheSameJSON(t *testing.T) {
	m := message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+"\t"+`"x":"\u009b31m \u202e ü 󠁁"}}`)
	records := recorded(t, pipeline.Outcome{Time: at, Before: m, After: m, Action: "pass"})
	f, err := format.New(format.JSONL, format.Options{EscapeUnprintable: true})
	if err != nil {
		t.Fatal(err)
	}
	got := f.Append(nil, &records[0])
	for _, r := range strings.TrimSuffix(string(got), "\n") {
		if !strconv.IsPrint(r) {
			t.Fatalf("%q contains the unprintable character %q", got, r)
		}
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(records[0].Line,
		&b)); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("got %s, want the same JSON as %s (error %v)", got, records[0].Line, err)
	}
}

func TestOnlyTheActionIsColoured(t *testing.T) {
	f, err := format.New(format.Text, format.Options{Colour: true})
	if err != nil {
		t.Fatal(err)
	}
	r := recorded(t, outcomes(t)...)[2]
	got := string(f.Append(nil, &r))
	want := "2026-11-21 11:00:00.123Z #3    \x1b[31mdeny\x1b[0m       to_server"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
}

func TestErrorForUnknownFormatListsFormats(t *testing.T) {
	if _, err := format.New("xml", format.Options{}); err == nil || !strings.Contains(err.Error(),
		"jsonl, ocsf, csv, text") {
		t.Errorf("error %v, want the names of the formats in it", err)
	}
}

func TestHeaderIsWrittenOnceAndNotToContinuedFile(t *testing.T) {
	records := recorded(t, outcomes(t)...)
	for _, continues := range []bool{false, true} {
		var out bytes.Buffer
		w := format.NewWriter(&out, encoder(t, "csv"), continues)
		for _, r := range records[:2] {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		want := map[bool]int{false: 1, true: 0}[continues]
		if got := strings.Count(out.String(), "timestamp,"); got != want {
			t.Errorf("continues %v: got %d headers, want %d, in\n%s", continues, got, want,
				out.String())
		}
	}
	w := format.NewWriter(&full{}, encoder(t, "csv"), false)
	if err := w.Write(records[0]); err == nil {
		t.Error("Write returned no error, although the disk is full")
	}
}

type full struct{}

func (*full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestFormulasAreEscaped(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"a plain value stays", "read", "read"},
		{"a formula", "=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"},
		{"a sum", "+1", "'+1"},
		{"a difference", "-1", "'-1"},
		{"a function with an at sign", "@SUM(1)", "'@SUM(1)"},
		{"a formula after spaces", "  =1", "'  =1"},
		{"a full-width sign", "＝1", "'＝1"},
		{"a tab is escaped, so there is no formula", "\t=1", `\t=1`},
		{"a carriage return is escaped, so there is no formula", "\r=1", `\r=1`},
		{"line breaks do not break the row", "a\r\nb", `a\r\nb`},
		{"quotes and commas", `say "a", then b`, `say "a", then b`},
		{"a backslash is not doubled", `C:\x`, `C:\x`},
		{"a right-to-left override", "a\u202eb", `a\u202eb`},
		{"a no-break space", "a\u00a0b", `a\u00a0b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			records := recorded(t, pipeline.Outcome{Time: at, Action: "test", Reason: c.value})
			rows, err := csv.NewReader(strings.NewReader(written(t, "csv", records))).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			if got := rows[1][9]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCellLengthIsBounded(t *testing.T) {
	step := audit.Step{Stage: "pii", Action: "modify"}
	for range 101 {
		step.Findings = append(step.Findings, audit.Finding{Type: "mail",
			Pointer: "/" + strings.Repeat("ü", 500)})
	}
	got := encoder(t, "csv").Append(nil, &audit.Record{Seq: 1, Time: at, Action: "modify",
		Kind: "request", Steps: []audit.Step{step}})
	rows, err := csv.NewReader(bytes.NewReader(got)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if cell := rows[0][20]; len(cell) > 32_767 || !utf8.ValidString(cell) ||
		!strings.HasSuffix(cell, "…") {
		t.Errorf("the cell has %d bytes, valid UTF-8: %v, and ends with %q; want at most 32767 "+
			"valid bytes that end with …", len(cell), utf8.ValidString(cell),
			cell[max(0, len(cell)-10):])
	}
}

func TestMaxBytesShortensLine(t *testing.T) {
	hostile := strings.Repeat("\x1b", 1<<10)
	m := message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"`+
		strings.Repeat("x", 1<<20)+`"}}`)
	m.Name, m.Server, m.Session, m.Exchange, m.Principal, m.Method = hostile, hostile, hostile,
		hostile, identity.FromID(hostile), hostile
	step := pipeline.Step{Stage: hostile, Action: "modify", Reason: hostile,
		Findings: slices.Repeat([]pipeline.Finding{{Type: hostile, Pointer: hostile}}, 90)}
	records := recorded(t, pipeline.Outcome{Time: at, Before: m, After: m, Action: "modify",
		Reason: hostile, Err: errors.New(hostile), Steps: []pipeline.Step{step, step}},
		outcomes(t)[1])
	for _, name := range format.Names() {
		f, err := format.New(name, format.Options{MaxBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		short := f.Append([]byte("before"), &records[0])
		if !bytes.HasPrefix(short, []byte("before")) || len(short) > 4096+len("before") ||
			bytes.Count(short, []byte("\n")) != 1 || !bytes.HasSuffix(short, []byte("\n")) {
			t.Errorf("%s: got %d bytes, want one line of at most 4096: %.200q", name, len(short),
				short)
		}
		if got, want := f.Append(nil, &records[1]), encoder(t, name).Append(nil,
			&records[1]); name != format.OCSF && !bytes.Equal(got, want) {
			t.Errorf("%s: a line that is not too long is %s, want %s", name, got, want)
		}
	}
	f, _ := format.New(format.JSONL, format.Options{MaxBytes: 4096})
	var got struct {
		audit.Record
		Short struct {
			Bytes  int
			SHA256 string
		}
	}
	if err := json.Unmarshal(f.Append(nil, &records[0]), &got); err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(records[0].Line); got.Seq != 1 || got.Action != "modify" ||
		len(got.Prev) != 64 || len(got.Before.SHA256) != 64 ||
		got.Short.Bytes != len(records[0].Line) || got.Short.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("got %+v, want the record with the size and hash of its full line", got)
	}
}

// FuzzRecordIsOneLine checks the guarantees of the package: one record is one line, valid in its
// format, without unprintable characters, whatever texts it holds.
func FuzzRecordIsOneLine(f *testing.F) {
	for _, s := range []string{"read", "a\nb", "\x1b[31m", "\u202e", "=1+1", `"`, `",`, "\\",
		"\xff", "\u2028", "\U000e0041", "a\r\nb", "'", " ", "\x00", "{}", "\ufeff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m := message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":`+
			string(mcp.Quote(s))+`}}`)
		m.Name, m.Server, m.Session, m.Exchange, m.Principal = s, s, s, s, identity.FromID(s)
		records := recorded(t, pipeline.Outcome{Time: at, Before: m, After: m, Action: "modify",
			Reason: s, Err: errors.New(s),
			Steps: []pipeline.Step{{Stage: s, Action: "modify", Reason: s,
				Findings: []pipeline.Finding{{Type: s, Pointer: s}}}}})
		for _, name := range format.Names() {
			got := encoder(t, name).Append(nil, &records[0])
			line, ok := bytes.CutSuffix(got, []byte("\n"))
			if name == format.CSV {
				line, _ = bytes.CutSuffix(line, []byte("\r"))
			}
			if !ok || !utf8.Valid(line) {
				t.Fatalf("%s: got %q, want a line of valid UTF-8", name, got)
			}
			if name != format.JSONL { // JSONL holds a body unchanged
				for _, r := range string(line) {
					if !strconv.IsPrint(r) {
						t.Fatalf("%s: %q contains the unprintable character %q", name, got, r)
					}
				}
			}
			switch name {
			case format.JSONL, format.OCSF:
				if !json.Valid(line) || bytes.ContainsAny(line, "\n\r") {
					t.Fatalf("%s: got %q, want JSON on one line", name, got)
				}
			case format.CSV:
				rows, err := csv.NewReader(bytes.NewReader(got)).ReadAll()
				if err != nil || len(rows) != 1 || len(rows[0]) != len(format.Columns()) {
					t.Fatalf("got the rows %q, error %v; want one row", rows, err)
				}
				for _, cell := range rows[0] {
					if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
						t.Fatalf("the cell %q begins like a formula", cell)
					}
				}
			}
		}
	})
}

func BenchmarkEncoder(b *testing.B) {
	records := recorded(b, outcomes(b)...)
	for _, name := range format.Names() {
		b.Run(name, func(b *testing.B) {
			f := encoder(b, name)
			var line []byte
			for i := 0; b.Loop(); i++ {
				line = f.Append(line[:0], &records[i%len(records)])
			}
		})
	}
}
