package audit_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// FuzzParseSummary checks that ParseSummary returns the same fields as ParseRecord, for any names,
// reasons and bodies.
func FuzzParseSummary(f *testing.F) {
	for _, s := range []string{"", "read", `"\`, `,"micros":5}`, `x","error":"y"}`, "\u2028\xff",
		"\\", strings.Repeat("亀", 400)} {
		f.Add(s, true, int64(7))
		f.Add(s, false, int64(0))
		f.Add(s, true, int64(5))
	}
	// The parameter s is the text of all fields. If full is set, the record has steps. The
	// parameter number selects the kind of message, and is the duration and the error code.
	f.Fuzz(func(t *testing.T, s string, full bool, number int64) {
		o := outcomeWith(s)
		o.Action += "x" // a record without an action is not valid
		o.Duration = time.Duration(number%1e6) * time.Microsecond
		if !full {
			o.Steps, o.Err, o.Before = nil, nil, &mcp.Message{}
		}
		switch number % 3 {
		case 0:
			o.After = mcp.NewError("1", int(number), s, nil)
		case 1:
			o.After = mcp.NewResponse("1",
				[]byte(`{"isError":true,"content":[],"x":`+string(mcp.Quote(s))+
					`,"failed":true,"code":7,"micros":5,"error":"x"}`))
			o.After.Method = "tools/call"
		default:
			o.After = mcp.NewRequest("1",
				"tools/call", []byte(`{"x":`+string(mcp.Quote(s))+`,"micros":5,"error":"x"}`))
		}
		var log bytes.Buffer
		l, err := audit.Open(audit.Options{Writer: &log, Bodies: audit.BodiesRedacted})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.Record(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		line := bytes.TrimSuffix(log.Bytes(), []byte("\n"))
		want, err := audit.ParseRecord(line)
		if err != nil {
			t.Fatal(err)
		}
		want.Prev, want.Steps, want.Before, want.After, want.Values = "", nil, nil, nil, nil
		if got, err := audit.ParseSummary(line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("error %v; ParseSummary returned\n%+v, ParseRecord\n%+v\nfor %s", err, got,
				want, line)
		}
	})
}

func TestParseSummaryParsesLinesInOtherForms(t *testing.T) {
	got, err := audit.ParseSummary([]byte(
		`{"action":"pass","seq":3,"time":"2026-11-21T12:00:00Z","steps":[{"stage":"s","action":"pass"}]}`))
	if err != nil || got.Seq != 3 || got.Action != "pass" || len(got.Steps) != 1 {
		t.Errorf("got %+v, error %v; want record 3 with its action and one step", got, err)
	}
	for _, end := range []string{`pass`, `pa\"ss`, `pass\`, `pass","reason":"a\\`} {
		if got, err := audit.ParseSummary([]byte(
			`{"seq":3,"time":"2026-11-21T12:00:00Z","prev":"","action":"` + end)); err == nil {
			t.Errorf("ParseSummary accepted a line that is truncated after %s: %+v", end, got)
		}
	}
}

// TestParseSummaryParsesShortRecords parses records without steps and bodies, whose last members
// follow the action directly.
func TestParseSummaryParsesShortRecords(t *testing.T) {
	for _, o := range []pipeline.Outcome{
		{Time: recordTime, Action: "stop"},
		{Time: recordTime, Action: "stop", Err: errors.New("why")},
		{Time: recordTime, Action: "stop", Duration: time.Second},
		{Time: recordTime, Action: "stop", Duration: time.Second, Err: errors.New("why")},
		{Time: recordTime, Action: "pass", Before: mcp.NewError("1", 7, "why", nil)},
	} {
		line := []byte(line(t, o))
		want, err := audit.ParseRecord(line)
		if err != nil {
			t.Fatal(err)
		}
		want.Prev, want.Before = "", nil
		if got, err := audit.ParseSummary(line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("error %v; ParseSummary returned\n%+v, ParseRecord\n%+v\nfor %s", err, got,
				want, line)
		}
		if want.IsEvent() != (o.Before == nil) {
			t.Errorf("IsEvent is %v for %s", want.IsEvent(), line)
		}
	}
}

func BenchmarkParseSummary(b *testing.B) {
	m := mcp.NewRequest("1", "tools/call", []byte(
		`{"name":"read","arguments":{"path":"/srv/data/x"}}`))
	m.Direction, m.Session, m.Exchange, m.Server, m.Name = mcp.ToServer, "session-nmhqfxg2kpde",
		"12",
		"files", "read"
	line := []byte(line(b, pipeline.Outcome{Time: recordTime, Before: m, After: m, Action: "pass",
		Duration: time.Millisecond, Steps: []pipeline.Step{{Stage: "secrets", Action: "pass",
			Duration: time.Microsecond}}}))
	for name, parse := range map[string]func([]byte) (audit.Record, error){"all": audit.ParseRecord,
		"summary": audit.ParseSummary} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
