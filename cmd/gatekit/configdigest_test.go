package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/config"
)

// TestConfigDigestComparesWhatReplicasShare changes one thing in the configuration of a replica.
func TestConfigDigestComparesWhatReplicasShare(t *testing.T) {
	const base = `[listen]
http = "127.0.0.1:7777"
drain = "30s"
[server.a]
command = "serve"
args = ["--token", "${env:GATEKIT_TEST_TOKEN}"]
[server.a.env]
KEY = "first secret"
[audit]
file = "audit-0.jsonl"
`
	digest := func(text, token string) string {
		t.Setenv("GATEKIT_TEST_TOKEN", token)
		file := filepath.Join(t.TempDir(), "gatekit.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return configDigest(c)
	}
	want := digest(base, "a token of the environment")
	if len(want) != 12 {
		t.Errorf("the digest is %q, want 12 digits", want)
	}
	for _, tt := range []struct {
		name, old, new, token string
		equal                 bool
	}{
		{"nothing", "", "", "", true},
		{"a comment above", "[listen]", "# a comment\n[listen]", "", true},
		{"the address", ":7777", ":7778", "", true},
		{"the log", "audit-0", "audit-1", "", true},
		{"a secret", "first secret", "second secret", "", true},
		{"a secret in an argument", "", "", "another token of the environment", true},
		{"drain", "30s", "31s", "", false},
		{"the command", `"serve"`, `"other"`, "", false},
		{"a variable", "KEY", "OTHER", "", false},
	} {
		token := tt.token
		if token == "" {
			token = "a token of the environment"
		}
		got := digest(strings.Replace(base, tt.old, tt.new, 1), token)
		if (got == want) != tt.equal {
			t.Errorf("%s: the digests are %s and %s, want equal ones: %t", tt.name, got, want,
				tt.equal)
		}
	}
}
