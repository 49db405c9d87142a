package sink_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gatekit/audit"
	"gatekit/audit/format"
	"gatekit/audit/sink"
	"gatekit/core/pipeline"
)

// The sink writes a CSV file of all decisions next to the audit log.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file, table := filepath.Join(dir, "gatekit.jsonl"), filepath.Join(dir, "records.csv")
	log, err := audit.Open(audit.Options{File: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	form, err := format.New(format.CSV, format.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := sink.New(sink.Options{
		Name: "table", Receiver: sink.NewFile(sink.FileOptions{Path: table, Encoder: form}),
		Records: true,
		LogFile: file, Committed: log.Committed, CursorFile: filepath.Join(dir, "table.json"),
		Logger: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, 5*time.Second) }()

	if _, err := log.Record(ctx, pipeline.Outcome{Time: time.Date(2026, 11, 21, 12, 0, 0, 0,
		time.UTC), Action: "deny", Reason: "outside of the roots"}); err != nil {
		fmt.Println(err)
	}
	log.Close()
	stop() // Run sends everything in the log before it returns
	fmt.Println(<-ended, s.Backlog())
	text, _ := os.ReadFile(table)
	fmt.Print(strings.ReplaceAll(string(text), "\r\n", "\n"))
	// Output: <nil> 0
	// timestamp,event_type,request_id,server_name,method,tool,pipeline_outcome,security_evaluated,modified,reason,duration_ms,response_status,error_code,error_message,error_classification,seq,session,principal,direction,stage,findings,client
	// 2026-11-21T12:00:00.000000Z,EVENT,,,,,deny,false,false,outside of the roots,,,,,,1,,,,,,
}
