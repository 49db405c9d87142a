package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gatekit/audit"
	"gatekit/core/pipeline"
)

func ExampleVerify() {
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gatekit.jsonl")

	log, err := audit.Open(audit.Options{File: path})
	if err != nil {
		panic(err)
	}
	p := pipeline.New(log, pipeline.Options{})
	for _, event := range []string{"start", "reload", "stop"} {
		if err := p.RecordEvent(context.Background(), nil, event, "", nil); err != nil {
			panic(err)
		}
	}
	if err := log.Close(); err != nil {
		panic(err)
	}

	lines, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	fmt.Println("as written:", audit.Verify(bytes.NewReader(lines)))
	changed := bytes.Replace(lines, []byte("reload"), []byte("unload"), 1)
	if bad, ok := errors.AsType[*audit.LineError](audit.Verify(bytes.NewReader(changed))); ok {
		fmt.Println("changed: the chain breaks at line", bad.Line)
	}
	// Output:
	// as written: <nil>
	// changed: the chain breaks at line 3
}
