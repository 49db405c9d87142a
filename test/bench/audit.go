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

// durabilities are what is compared, one without a log first.
var durabilities = []stages{
	{way: plain, unlogged: true},
	{way: "write", audit: "durability = \"write\"\n"},
	{way: "fsync", audit: "durability = \"fsync\"\n"},
	{way: "async", audit: "durability = \"async\"\n"},
}

// withLogs are the durabilities, and the first of them with a file and a webhook to send all
// records to.
func withLogs(hook string) []stages {
	return append(slices.Clone(durabilities), stages{way: withSinks,
		audit: "durability = \"write\"\n", tables: fmt.Sprintf(
			"[[audit.sink]]\nname = \"file\"\nkind = \"file\"\npath = "+
				"\"sink.jsonl\"\n[[audit.sink]]\nname = \"hook\"\nkind = \"webhook\"\nurl = %q\n",
			hook)})
}

const withSinks = "write, two sinks"

// unlogged answers an overlay under which gatekit records nothing: the product always does.
func unlogged(dir, root string) (overlay string, err error) {
	path := filepath.Join(root, "audit", "log.go")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const record = "\treturn l.record(l.encode(o))\n"
	changed := bytes.Replace(source, []byte(record),
		[]byte("\tif o.Before != nil && o.Before.Kind != 0 {\n\t\treturn 1, nil\n\t}\n"+record), 1)
	if bytes.Equal(changed, source) {
		return "", fmt.Errorf("%s no longer has what a gatekit without a log is made of: %s", path,
			record)
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

// measureAudit compares Gatekit with each durability, and with sinks, with one that records no
// message. What takes the webhook's records is in this process, beside the client.
func (p *plan) measureAudit(l lane, out report) (err error) {
	if l.unlogged, err = buildUnlogged(l.dir); err != nil {
		return err
	}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer hook.Close()
	return p.measureStages(l, withLogs(hook.URL), out.auditHead, out.audit)
}
