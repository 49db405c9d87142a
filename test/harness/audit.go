package harness

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatekit/audit"
)

// Record is one record of the audit log.
type Record struct {
	Seq       uint64
	Time      time.Time
	Prev      string
	Session   string
	Exchange  string
	Principal string
	Client    string // OAuth client id
	Via       string // replica that forwarded the message
	Direction string
	Kind      string
	Method    string
	Server    string
	Name      string
	Action    string
	Reason    string
	Before    struct {
		Size   int
		SHA256 string
	}
	After struct {
		Size   int
		SHA256 string
	}
	Error string
}

// String returns some fields of the record as one line, for comparison: direction, kind, method,
// server, name and action. Absent fields are "-". An example is "to_server request tools/call box
// echo pass".
func (r Record) String() string {
	word := func(s string) string { return cmp.Or(s, "-") }
	return strings.Join([]string{word(r.Direction), word(r.Kind), word(r.Method), word(r.Server),
		word(r.Name), word(r.Action)}, " ")
}

// Records returns the records that the audit log holds now.
func (g *Gatekit) Records() (all []Record) {
	g.T.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.T.Error(err)
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			g.T.Errorf("a record is not JSON: %v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// LogLines returns the lines of the audit log, unparsed.
func (g *Gatekit) LogLines() []string {
	g.T.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		g.T.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// WantRecords fails the test unless the audit log has each of the records, in the form of
// Record.String.
func (g *Gatekit) WantRecords(want ...string) {
	g.T.Helper()
	var got []string
	for _, r := range g.Records() {
		got = append(got, r.String())
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			g.T.Errorf("the audit log has no record %s; its last records are\n\t%s", w,
				strings.Join(got[max(0, len(got)-60):], "\n\t"))
			return
		}
	}
}

// CheckChain reads all segments of the log. It fails the test unless every record has the next seq
// and contains the hash of the record before it.
func (g *Gatekit) CheckChain() {
	var b []byte
	segments, _ := audit.Segments(filepath.Join(g.Dir, "audit.jsonl"))
	for _, name := range segments {
		part, _ := os.ReadFile(name)
		b = append(b, part...)
	}
	prev := strings.Repeat("0", 64)
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			g.T.Errorf("record %d is not JSON: %v: %s", i+1, err, line)
			return
		}
		if r.Seq != uint64(i+1) || r.Prev != prev {
			g.T.Errorf("record %d has seq %d and prev %s, want seq %d and prev %s", i+1, r.Seq,
				r.Prev, i+1, prev)
			return
		}
		sum := sha256.Sum256(line)
		prev = hex.EncodeToString(sum[:])
	}
}

// WantReasons fails the test unless each of the texts is contained in the reason of some record.
func (g *Gatekit) WantReasons(want ...string) {
	g.T.Helper()
	for _, w := range want {
		found, reasons := false, ""
		for _, r := range g.Records() {
			found = found || strings.Contains(r.Reason, w)
			if r.Reason != "" {
				reasons += fmt.Sprintf("\n%s: %s", r, r.Reason)
			}
		}
		if !found {
			g.T.Errorf("the audit log has no record whose reason contains %q; the last reasons "+
				"are:%s", w, reasons[max(0, len(reasons)-2000):])
		}
	}
}

// WantDenialError fails the test unless the log has a denial whose error contains the text.
func (g *Gatekit) WantDenialError(want string) {
	g.T.Helper()
	if !slices.ContainsFunc(g.Records(), func(r Record) bool {
		return r.Action == "deny" && strings.Contains(r.Error, want)
	}) {
		g.T.Errorf("the audit log has no denial whose error contains %q", want)
	}
}
