package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// writeFleet writes the logs of the replicas gatekit-0, gatekit-1 and gatekit-2 to folders in dir.
// Each has one call of the tool read, a second after that of the replica before it. gatekit-0 knows
// gatekit-1 and has forwarded its call, and has the name of gatekit-2 from its configuration.
func writeFleet(dir string) error {
	var logs [3]*audit.Log
	for i := range logs {
		name := fmt.Sprintf("gatekit-%d", i)
		o := audit.Options{File: filepath.Join(dir, name, "gatekit.jsonl"), Replica: name}
		if i == 0 {
			o.Peers = []string{"gatekit-0", "gatekit-1", "gatekit-2"}
		}
		l, err := audit.Open(o)
		if err != nil {
			return err
		}
		logs[i] = l
	}
	entry, _ := logs[1].RosterEntry()
	if err := logs[0].Meet(entry); err != nil {
		return err
	}
	start := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	for i, l := range logs {
		var via string
		if i == 1 {
			via = "gatekit-0"
		}
		if err := writeCall(l, start.Add(time.Duration(i)*time.Second), via); err != nil {
			return err
		}
	}
	var errs []error
	for _, l := range logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// writeCall records a call of the tool read that took 100 ms.
func writeCall(l *audit.Log, start time.Time, via string) error {
	for i, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`} {
		m, err := mcp.Parse([]byte(text))
		if err != nil {
			return err
		}
		m.Session, m.Exchange, m.Server, m.Name, m.Method = "s1", "1", "files", "read", "tools/call"
		m.Direction, m.Via = mcp.ToServer, via
		if i == 1 {
			m.Direction, m.Via = mcp.ToClient, ""
		}
		if _, err := l.Record(context.Background(), pipeline.Outcome{
			Time: start.Add(time.Duration(i) * 100 * time.Millisecond), Action: "pass", Before: m,
			After: m}); err != nil {
			return err
		}
	}
	return nil
}
