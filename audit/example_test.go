package audit_test

import (
	"bytes"
	"context"
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
	fmt.Println(audit.Verify(bytes.NewReader(lines)))
	fmt.Println(audit.Verify(bytes.NewReader(bytes.Replace(lines, []byte("reload"),
		[]byte("unload"), 1))))
	// Output: <nil> line 3: prev is not the hash of the line before: one of the two was changed, or
	// one between them is missing
}
