//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// durabilities are what is compared, one without a log first.
var durabilities = []stages{
	{way: plain, unlogged: true},
	{way: "write", audit: "durability = \"write\"\n"},
	{way: "fsync", audit: "durability = \"fsync\"\n"},
	{way: "async", audit: "durability = \"async\"\n"},
}

// unlogged answers an overlay under which gatekit records nothing: the product always does.
func unlogged(dir, root string) (overlay string, err error) {
	path := filepath.Join(root, "audit", "log.go")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const record = "\treturn l.record(l.encode(o))\n"
	changed := bytes.Replace(source, []byte(record), []byte("\tif o.Before != nil && o.Before.Kind != 0 {\n\t\treturn 1, nil\n\t}\n"+record), 1)
	if bytes.Equal(changed, source) {
		return "", fmt.Errorf("%s no longer has what a gatekit without a log is made of: %s", path, record)
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

// measureAudit compares Gatekit with each durability with one that records no message.
func (p *plan) measureAudit(l lane, out report) (err error) {
	if l.unlogged, err = buildUnlogged(l.dir); err != nil {
		return err
	}
	l.route, l.era, l.stages = p.routes[0], p.eras[0], durabilities
	var ways []string
	for _, s := range durabilities {
		ways = append(ways, s.way)
	}
	out.auditHead(l)
	for _, l.workers = range p.at {
		targets, end, err := l.open(ways...)
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(targets, l.workers, func(t *target) message { return callEcho(t.tool, size) }, p.rounds, p.length)
			if err == nil {
				out.audit(l, size, c)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}
