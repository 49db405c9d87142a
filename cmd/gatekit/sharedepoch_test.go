package main

import (
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/config"
	"gatekit/transport/valkey"
)

// TestReadEpoch reads what an earlier process has kept. A file that cannot be read is an error: it
// may tell of a loss.
func TestReadEpoch(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	c := &config.Config{}
	c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	folder, err := epochFolder(c)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := readEpoch(c); err != nil || e != (valkey.Epoch{}) {
		t.Errorf("without a folder: got %v and the error %v, want the zero Epoch", e, err)
	}
	if err := folder.Create(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		content string
		want    valkey.Epoch
		fault   string // a part of the error; "" for none
	}{
		{`{"id":"a","generation":18446744073709551615}`, valkey.Epoch{ID: "a",
			Generation: 1<<64 - 1}, ""},
		{`{"id":"a","generation":7,"later":1}`, valkey.Epoch{ID: "a", Generation: 7}, ""},
		{`{"id":"a","gener`, valkey.Epoch{}, epochFile},
		{``, valkey.Epoch{}, epochFile},
	} {
		if err := folder.Write(epochFile, []byte(tt.content)); err != nil {
			t.Fatal(err)
		}
		e, err := readEpoch(c)
		switch {
		case tt.fault == "" && (err != nil || e != tt.want):
			t.Errorf("%q: got %v and the error %v, want %v", tt.content, e, err, tt.want)
		case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
			t.Errorf("%q: got the error %v, want one that names the file", tt.content, err)
		}
	}
}
