package audit_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestEqualValuesHaveEqualHashes records calls with values. The log must not contain the values, or
// allow a reader to guess them.
func TestEqualValuesHaveEqualHashes(t *testing.T) {
	call := func(arguments string) *mcp.Message {
		return parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":`+arguments+`,"_meta":{"progressToken":"hunter0"}}}`)
	}
	cleared, err := call(`{"path":"/srv/a","key":"hunter2"}`).Edit(mcp.Set("/arguments/key",
		[]byte(`"[secret]"`)))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := []pipeline.Outcome{
		{Action: "pass", Before: call(`{"path":"/srv/a"}`), After: call(`{"path":"/srv/a"}`)},
		{Action: "pass", Before: call(
			`{"n":7,"on":true,"other":"","paths":["/srv/b","\u002fsrv/a"]}`)},
		{Action: "deny", Before: call(`{"hunter2":"hunter2"}`)},
		{Action: "modify", Before: call(`{"path":"/srv/a","key":"hunter2"}`), After: cleared},
		{Action: "pass", Before: call(`{"list":["x` + strings.Repeat(`","x`, 40) + `"],"long":"` +
			strings.Repeat("x", 5000) + `"}`)},
	}
	longest := strings.Repeat("y", 4<<10)
	outcomes = append(outcomes, pipeline.Outcome{Action: "deny", Before: call(`{"text":"` + longest +
		`"}`), Withheld: []string{longest[:4<<10-1] + "z"}})
	outcomes[1].After = outcomes[1].Before
	outcomes[4].After = outcomes[4].Before
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	for i := range 2 { // the key must stay the same when the log is opened again
		l := open(t, audit.Options{File: file})
		for _, o := range outcomes {
			o.Time = recordTime
			record(t, l, o)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(allLines(t, file)); n != (i+1)*len(outcomes) {
			t.Fatalf("the log has %d records, want %d", n, (i+1)*len(outcomes))
		}
	}
	values, err := audit.OpenValueHasher(file, "")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"/srv/a"}, {"/srv/b", "/srv/a"}, {"hunter2"}, {"/srv/a", "[secret]"},
		slices.Repeat([]string{"x"}, 16), {longest[:4<<10-1] + "z", longest}}
	for i, line := range allLines(t, file) {
		r, err := audit.ParseRecord(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		i %= len(outcomes)
		var hashes []string
		for _, v := range want[i] {
			hashes = append(hashes, values.Hash(v))
		}
		if !slices.Equal(r.Values, hashes) {
			t.Errorf("record %d has values %q, want %q", r.Seq, r.Values, hashes)
		}
		if bytes.Contains(line, []byte("hunter")) {
			t.Errorf("record %d contains a secret value: %s", r.Seq, line)
		}
		before := outcomes[i].Before.Body()
		// the hash of a body is plain (without a key) only if the body was forwarded unchanged
		plain := outcomes[i].After != nil && r.Action == "pass"
		if sum := fmt.Sprintf("%x", sha256.Sum256(before)); (r.Before.SHA256 == sum) != plain ||
			(r.Before.HMAC == "") != plain || !plain && bytes.Contains(line, []byte(sum)) {
			t.Errorf("record %d (%s) has the body %+v before the stages, want a plain hash: %v",
				r.Seq, r.Action, r.Before, plain)
		}
	}
	other := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: other, Key: file + ".key"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	others, err := audit.OpenValueHasher(other, file+".key")
	if err != nil {
		t.Fatal(err)
	}
	if others.Hash("x") == values.Hash("x") {
		t.Error("two logs with the same key hash a value alike, want different hashes")
	}
	var log bytes.Buffer
	outcomes[0].Time = recordTime
	record(t, open(t, audit.Options{Writer: &log, Bodies: audit.BodiesNone}), outcomes[0])
	if r, err := audit.ParseRecord(bytes.TrimSpace(log.Bytes())); err != nil || r.Values != nil ||
		r.Before.SHA256+r.Before.HMAC != "" {
		t.Errorf("with BodiesNone the record is %s, error %v; want no hashes", &log, err)
	}
}

// TestWithheldWordsAreHashedAndNotWritten checks names that the pipeline withholds. A record must
// hold the keyed hashes of these names in the member "values". It must contain neither the names
// nor a plain hash of the body.
func TestWithheldWordsAreHashedAndNotWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file, Bodies: audit.BodiesRedacted})
	for _, passes := range []bool{true, false} {
		m := mcp.NewRequest("1", "tools/call", []byte(
			`{"name":"s3cret-name","arguments":{"a":"b"}}`))
		m.Server = "files"
		o := pipeline.Outcome{Time: recordTime, Before: m, Action: "deny",
			Withheld: []string{"s3cret-name"}}
		if passes {
			o.After, o.Action = m, "pass"
		}
		record(t, l, o)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	values, err := audit.OpenValueHasher(file, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(`{"name":"s3cret-name","arguments":{"a":"b"}}`)))
	for line := range bytes.Lines(b) {
		r, err := audit.ParseRecord(bytes.TrimSpace(line))
		if err != nil || !slices.Equal(r.Values, []string{values.Hash("s3cret-name"),
			values.Hash("b")}) {
			t.Errorf("the record is %s, error %v; want the hashes of the name and of the value",
				line, err)
		}
		if bytes.Contains(line, []byte("s3cret")) || bytes.Contains(line, []byte(sum)) {
			t.Errorf("a withheld word is readable or has a plain hash: %s", line)
		}
	}
}

// FuzzValues checks that the hashed strings are those that core/mcp finds in the arguments.
func FuzzValues(f *testing.F) {
	for _, arguments := range []string{`{}`,
		`{"a" : "b", "c":["d","\"","\\\\","\\\\\"e:"], "f\"" :"\ud800"}`,
		`"x"`, `[{"a":{"b":"c"}}]`} {
		f.Add(arguments)
	}
	file := filepath.Join(f.TempDir(), "gatekit.jsonl")
	l := open(f, audit.Options{File: file})
	f.Cleanup(func() { l.Close() })
	values, err := audit.OpenValueHasher(file, "")
	if err != nil {
		f.Fatal(err)
	}
	log, err := os.Open(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { log.Close() })
	f.Fuzz(func(t *testing.T, arguments string) {
		m, err := mcp.Parse([]byte(
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":` + arguments +
				`,"_meta":{"x":"y"}}}`))
		if err != nil || m.Kind != mcp.Request {
			return
		}
		var want []string
		for leaf := range m.Leaves {
			if at := leaf.Pointer(); leaf.Kind == mcp.StringLeaf && len(leaf.Raw) > 2 &&
				len(leaf.Raw)-2 <= 4<<10 && (at == "/arguments" || strings.HasPrefix(at,
				"/arguments/")) && len(want) < 16 {
				want = append(want, values.Hash(leaf.Text()))
			}
		}
		record(t, l, pipeline.Outcome{Time: recordTime, Before: m, After: m, Action: "pass"})
		line, err := io.ReadAll(log) // lines since the last read
		if err != nil {
			t.Fatal(err)
		}
		r, err := audit.ParseRecord(bytes.TrimSpace(line))
		if err != nil || !slices.Equal(r.Values, want) {
			t.Errorf("the values of %q are %q, want %q; %v", arguments, r.Values, want, err)
		}
	})
}
