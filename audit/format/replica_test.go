package format_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/audit/format"
)

// Every format but JSONL names the replica, and all of them are as before without one.
func TestFormatsNameTheReplica(t *testing.T) {
	r := audit.Record{Seq: 7, Time: time.Unix(0, 0), Action: "start", Line: []byte(`{"seq":7}`)}
	for name, want := range map[string]string{
		format.CSV:   ",replica\r\n1970-01-01T00:00:00.000000Z,EVENT,,,,,start,",
		format.OCSF:  `"unmapped":{"replica":"gk-1",`,
		format.Text:  "1970-01-01 00:00:00.000Z #gk-1:7    start",
		format.JSONL: "{\"seq\":7}\n",
	} {
		written := func(replica string) string {
			f, err := format.New(name, format.Options{Replica: replica})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := format.NewWriter(&out, f, false).Write(r); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		got := written("gk-1")
		if !strings.Contains(got, want) || name == format.CSV && !strings.HasSuffix(got,
			",gk-1\r\n") {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if got := written(""); strings.Contains(got, "replica") || strings.Contains(got, ":7") &&
			name == format.Text {
			t.Errorf("%s names a replica although there is none: %q", name, got)
		}
	}
	if slices.Contains(format.Columns(), "replica") {
		t.Error("the columns without a replica have one")
	}
}
