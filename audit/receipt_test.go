package audit_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// newReceipt returns a receipt of a new log, and the key of the log.
func newReceipt(t *testing.T, arguments, result string) (receipt string, key note.Verifier) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seq, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: "pass"})
	if err != nil {
		t.Fatal(err)
	}
	sum := func(text string) [sha256.Size]byte {
		canonical, err := mcp.CanonicalJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(canonical)
	}
	b, err := l.SignReceipt(pipeline.Receipt{Server: "box", Tool: "echo", Record: seq,
		Arguments: sum(arguments), Result: sum(result), Decision: "pass"})
	if err != nil {
		t.Fatal(err)
	}
	if key, err = audit.ReadPublicKey(audit.PublicKeyFile(file)); err != nil {
		t.Fatal(err)
	}
	return string(b), key
}

func withReceipt(receipt string) string {
	return `{"content":[],"_meta":{"gatekit/receipt":` + receipt + `}}`
}

func TestVerifyReceipt(t *testing.T) {
	receipt, key := newReceipt(t, `{"a":1}`, `{"content":[]}`)
	other, otherKey := newReceipt(t, `{"a":1}`, `{"content":[]}`)
	for _, tt := range []struct {
		name, result, arguments string
		key                     note.Verifier
		err                     string // "" if the receipt is valid
	}{
		{"a result", withReceipt(receipt), `{"a":1}`, key, ""},
		{"equal arguments", withReceipt(receipt), ` { "a" : 1.0 } `, key, ""},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":` + withReceipt(receipt) + `}`, `{"a":1}`,
			key, ""},
		{"numbers in another form", withReceipt(strings.NewReplacer(`"version":1,`,
			`"version":1.0,`, `"record":1,`, `"record":1e0,`).Replace(receipt)), `{"a":1}`, key, ""},
		{"another log", withReceipt(other), `{"a":1}`, key, "the receipt is signed with key"},
		{"another key", withReceipt(receipt), `{"a":1}`, otherKey, "the receipt is signed with key"},
		{"other arguments", withReceipt(receipt), `{"a":2}`, key, "does not match the arguments"},
		{"no arguments", withReceipt(receipt), ` `, key, "does not match the arguments"},
		{"arguments that are no JSON", withReceipt(receipt), `{`, key, "read the arguments: "},
		{"another result", strings.Replace(withReceipt(receipt), "[]", "[1]", 1), `{"a":1}`, key,
			"does not match the result"},
		{"more in _meta", strings.Replace(withReceipt(receipt), `"_meta":{`, `"_meta":{"b":1,`, 1),
			`{"a":1}`, key, "does not match the result"},
		{"a result that rounds to an equal one", strings.Replace(withReceipt(receipt), "[]",
			"[9007199254740993]", 1), `{"a":1}`, key, "read the result: a number is no IEEE 754 double"},
		{"no receipt", `{"content":[]}`, ``, key, "the result has no receipt: its _meta has no"},
		{"a reason in its place", `{"content":[],"_meta":{"gatekit/noReceipt":"a number"}}`, ``, key,
			"the result has no receipt: a number"},
		{"an error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, ``, key,
			"it is a JSON-RPC error"},
		{"no JSON", `{`, ``, key, "read the result: "},
		{"no message", `{"jsonrpc":"2.0"}`, ``, key, "read the result: "},
		{"null", `null`, ``, key, "the result has no receipt"},
		{"another result beside the response", `{"jsonrpc":"2.0","id":1,"content":[1],"result":` +
			withReceipt(receipt) + `}`, `{"a":1}`, key, "has the members jsonrpc, id and result only"},
		{"a duplicate member", withReceipt(strings.Replace(receipt, "{", `{"record":1,`, 1)),
			`{"a":1}`, key, "read the result: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := audit.VerifyReceipt([]byte(tt.result), []byte(tt.arguments), tt.key)
			if tt.err == "" {
				if err != nil || r.Server != "box" || r.Tool != "echo" || r.Record != 1 ||
					r.Decision != "pass" || r.Key == "" || r.Log == "" || r.CheckpointRoot == "" {
					t.Errorf("got %+v, %v, want a valid receipt", r, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.err) || r != nil {
				t.Errorf("got %+v, %v, want the error %q", r, err, tt.err)
			}
		})
	}
}

// A result may be larger than the default limits of messages: the configuration can raise them.
func TestVerifyReceiptOfLargeResult(t *testing.T) {
	for name, content := range map[string]string{
		"long":           `"` + strings.Repeat("a", 17<<20) + `"`,
		"of many values": `[1` + strings.Repeat(",1", 1_100_000) + `]`,
		"deep":           strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000),
	} {
		result := `{"content":` + content + `}`
		receipt, key := newReceipt(t, `{}`, result)
		whole := strings.TrimSuffix(result, "}") + `,"_meta":{"gatekit/receipt":` + receipt + `}}`
		if _, err := audit.VerifyReceipt([]byte(whole), nil, key); err != nil {
			t.Errorf("a result that is %s: %v, want a valid receipt", name, err)
		}
	}
}

// Each member is signed, and there are no others.
func TestReceiptMembers(t *testing.T) {
	receipt, key := newReceipt(t, `{}`, `{"content":[]}`)
	var all map[string]any
	if err := json.Unmarshal([]byte(receipt), &all); err != nil || len(all) != 14 {
		t.Fatalf("the receipt has %d members, %v: %s; want 14", len(all), err, receipt)
	}
	verify := func(change func(map[string]any)) error {
		changed := maps.Clone(all)
		change(changed)
		b, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		_, err = audit.VerifyReceipt([]byte(withReceipt(string(b))), nil, key)
		return err
	}
	if err := verify(func(map[string]any) {}); err != nil {
		t.Fatalf("the receipt written again: %v, want a valid receipt", err)
	}
	for name, old := range all {
		for what, change := range map[string]func(map[string]any){
			"changed": func(m map[string]any) {
				if text, isText := old.(string); isText {
					m[name] = "A" + text
				} else {
					m[name] = old.(float64) + 1
				}
			},
			"removed":         func(m map[string]any) { delete(m, name) },
			"null":            func(m map[string]any) { m[name] = nil },
			"of another type": func(m map[string]any) { m[name] = []any{old} },
			"zero": func(m map[string]any) {
				if m[name] = 0; old != any("") {
					m[name] = ""
				}
			},
		} {
			if err := verify(change); err == nil {
				t.Errorf("%s %s: the receipt is valid, want an error", name, what)
			}
		}
	}
	if err := verify(func(m map[string]any) { m["more"] = 1 }); err == nil {
		t.Error("another member: the receipt is valid, want an error")
	}
	if err := verify(func(m map[string]any) { m["version"] = 2 }); err == nil ||
		!strings.Contains(err.Error(), "unknown version 2") {
		t.Errorf("version 2: %v, want that the version is unknown", err)
	}
	if err := verify(func(m map[string]any) { m["decision"] = "deny" }); err == nil ||
		!strings.Contains(err.Error(), "the receipt was changed: its signature with key") {
		t.Errorf("another decision: %v, want that the receipt was changed", err)
	}
}

// The receipt has the last checkpoint, which a later receipt of the log replaces.
func TestReceiptHasLastCheckpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	receiptOf := func(records int) (r audit.Receipt) {
		l, err := audit.Open(audit.Options{File: file})
		if err != nil {
			t.Fatal(err)
		}
		for range records {
			if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
				Action: "pass"}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := l.SignReceipt(pipeline.Receipt{Record: 1})
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err = errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := receiptOf(0); r.CheckpointSize != 0 {
		t.Errorf("a new log has a checkpoint of %d records, want 0", r.CheckpointSize)
	}
	receiptOf(3)
	r := receiptOf(0)
	key, err := audit.ReadPublicKey(audit.PublicKeyFile(file))
	if err != nil {
		t.Fatal(err)
	}
	c, err := audit.OpenCheckpoint(readFile(t, filepath.Join(file+".tree", "checkpoint")), key)
	if err != nil {
		t.Fatal(err)
	}
	if r.CheckpointSize != 3 || r.CheckpointRoot != c.Root.String() || r.Log != c.Origin {
		t.Errorf("the receipt has %d records, root %s, log %s; want 3, %s, %s", r.CheckpointSize,
			r.CheckpointRoot, r.Log, c.Root, c.Origin)
	}
}

// A log without a key signs nothing.
func TestSignReceiptNeedsKey(t *testing.T) {
	l, err := audit.Open(audit.Options{Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if b, err := l.SignReceipt(pipeline.Receipt{Record: 1}); err == nil {
		t.Errorf("a log with a Writer signed %s", b)
	}
}

func TestReceiptOfInvalidName(t *testing.T) {
	l, err := audit.Open(audit.Options{File: filepath.Join(t.TempDir(), "audit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if b, err := l.SignReceipt(pipeline.Receipt{Record: 1, Tool: "\xff"}); err == nil {
		t.Errorf("a name that is not UTF-8 was signed: %s", b)
	}
}
