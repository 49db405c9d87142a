//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
)

// durabilityVariants are the baseline, a Gatekit that records no message, and one variant for each
// durability.
var durabilityVariants = []variant{
	{name: baseline, unlogged: true},
	{name: "write", auditKeys: "durability = \"write\"\n"},
	{name: "fsync", auditKeys: "durability = \"fsync\"\n"},
	{name: "async", auditKeys: "durability = \"async\"\n"},
}

// auditVariants returns the durabilityVariants and two more variants. One adds receipts to the
// results. The other one sends all records to a file and to the webhook at hookURL.
func auditVariants(hookURL string) []variant {
	return append(slices.Clone(durabilityVariants), variant{
		name:      "write, receipts",
		auditKeys: "durability = \"write\"\nreceipts = true\n",
	}, variant{
		name:      "write, two sinks",
		auditKeys: "durability = \"write\"\n",
		tables: "[[audit.sink]]\nname = \"file\"\nkind = \"file\"\npath = \"sink.jsonl\"\n" +
			fmt.Sprintf("[[audit.sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = %q\n",
				hookURL),
	})
}

// unloggedOverlay writes an overlay file for go build and returns its path. A gatekit that is built
// with this overlay records no message. The product always records messages.
func unloggedOverlay(dir, root string) (overlay string, err error) {
	path := filepath.Join(root, "audit", "log.go")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const record = "\treturn l.record(l.encode(o))\n"
	changed := bytes.Replace(source, []byte(record),
		[]byte("\tif o.Before != nil && o.Before.Kind != 0 {\n\t\treturn 1, nil\n\t}\n"+record), 1)
	if bytes.Equal(changed, source) {
		return "", fmt.Errorf("remove the audit log for comparison: %s no longer has the line %s",
			path, record)
	}
	replaced := filepath.Join(dir, "log.go")
	if err := os.WriteFile(replaced, changed, 0o600); err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "unlogged.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// measureAudit compares each of the auditVariants with the Gatekit that records no message. The
// server of the webhook runs in the client's process.
func (p *plan) measureAudit(s setup, out report) (err error) {
	if s.unloggedGatekit, err = buildUnlogged(s.dir); err != nil {
		return err
	}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer hook.Close()
	return p.measureVariants(s, auditVariants(hook.URL), out.auditHeader, out.auditRows)
}
