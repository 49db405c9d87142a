package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gatekit/core/config"
	"gatekit/policies"
)

func TestUnsharedRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.rego")
	if err := os.WriteFile(file, []byte(`package gatekit.t
deny contains "x" if { "l" in input.session.labels; input.session.minute[""] > 2 }
note contains "x" if input.session.calls[""] > 2
ask contains "x" if input.name == "y"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	stage, err := policies.Load(policies.Options{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		config config.Config
		want   []string
	}{
		{"one process", config.Config{}, nil},
		{"replicas", config.Config{Cluster: &config.Cluster{}}, []string{"t: deny", "t: note"}},
		{"replicas that share", config.Config{Cluster: &config.Cluster{},
			Shared: &config.Shared{}}, nil},
	} {
		if got := unsharedRules(&tt.config, stage); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
