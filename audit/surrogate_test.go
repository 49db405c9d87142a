package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gatekit/audit"
)

// A body with lone surrogates is a line of the log that can be read and verified, and after which a
// log can be opened again.
func TestBodyWithLoneSurrogatesIsARecord(t *testing.T) {
	const body = `{"name":"read","arguments":{"cut \ud83d":"\ude00","x":["\ud800"]}}`
	folder, copied := t.TempDir(), t.TempDir()
	file := filepath.Join(folder, "audit.jsonl")
	l := open(t, audit.Options{File: file, Bodies: audit.BodiesRedacted})
	m := parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+body+`}`)
	o := event("")
	o.Before, o.After = m, m
	record(t, l, o)
	// The copy is as after a crash: it has no record of the end.
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(copied, "audit.jsonl")
	if err := os.Chmod(file+".key", 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, log)
	line := log[bytes.LastIndexByte(log[:len(log)-1], '\n')+1 : len(log)-1]
	r, err := audit.ParseRecord(line)
	if err != nil || r.After == nil || string(r.After.Body) != body {
		t.Errorf("the record is %+v, error %v; want the body %s", r, err, body)
	}

	l, err = audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatalf("open a log that ends with the record: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := audit.ParseRecord(bytes.Replace(line, []byte("cut"), []byte("\xff"),
		1)); err == nil {
		t.Error("a record with bytes that are not UTF-8 was parsed, want an error")
	}
}
