package audit_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/audit"
	"gatekit/core/pipeline"
)

// TestSecretsOfURIsAreHashed records requests for resources whose URIs hold tokens and passwords.
func TestSecretsOfURIsAreHashed(t *testing.T) {
	tests := []struct{ name, prefix string }{ // the prefix of the recorded name
		{"https://host/a?token=s3cr3t", "https://host/a?…"},
		{"https://host/a?token=other", "https://host/a?…"},
		{"file:///srv/a#s3cr3t", "file:///srv/a#…"},
		{"db:x?token=s3cr3t", "db:x?…"},
		{"https://host/a", "https://host/a"},
		{"https://me:s3cr3t@host/a", "https://…"},
		{"https://me:s3cr3t@other@host/a", "https://…"},
		{"https://s3cr3t@host/a?b", "https://…"},
		{`HTTPS:\\me:s3cr3t@host\a`, `HTTPS:\\…`},
		{"https:me:s3cr3t@host/a", "https:…"},
		{"db://me:s3cr3t@host/a#b", "db://…"},
		{"box+db://me:s3cr3t@host/a", "box+db://…"},
		{"jdbc:db://me:s3cr3t@host/a", "jdbc:db://…"},
		{"https://proxy/https://me:s3cr3t@host/a", "https://proxy/https://…"},
		{"https://host/@me", "https://host/@me"},
		{"mailto:me@host", "mailto:me@host"},
		{"https://host/{?page}", "https://host/{?page}"},
		{"https://host/a?", "https://host/a?"},
		{"az09+-.z://host/?token=s3cr3t", "az09+-.z://host/?…"},
		{" https://host/a?token=s3cr3t", " https://host/a?…"},
		{"\x00\t\u00a0\ufeffdb:x?token=s3cr3t", "\x00\t\u00a0\ufeffdb:x?…"},
		{"ht\ttps://host/b?token=s3cr3t", "ht\ttps://host/b?…"},
		{" a b?c", " a b?c"},
		{"a_z://host/?x", "a_z://host/?x"},
		{"1z://host/?x", "1z://host/?x"},
		{"what?", "what?"},
		{"?what", "?what"},
		{"a tool?b", "a tool?b"},
	}
	for _, bodies := range []audit.Bodies{audit.BodiesDigest, audit.BodiesNone} {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Bodies: bodies})
		for _, tt := range tests {
			m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}`)
			m.Name = tt.name
			record(t, l, pipeline.Outcome{Time: recordTime, Before: m, Action: "deny",
				Reason: "mine: " + tt.name + " is not allowed",
				// a policy also sees the canonical spelling
				Err: errors.New(strings.NewReplacer("host/", "host:443/./", "\t", "").
					Replace(tt.name)),
				Steps: []pipeline.Step{{Stage: "policy", Action: "deny", Reason: tt.name,
					Findings: []pipeline.Finding{{Type: "would deny: mine: " + tt.name}}}}})
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for i, line := range allLines(t, file) {
			r, err := audit.ParseRecord(line)
			if err != nil {
				t.Fatal(err)
			}
			hidden := strings.HasSuffix(tests[i].prefix, "…")
			if !strings.HasPrefix(r.Name, tests[i].prefix) || !hidden && r.Name != tests[i].name {
				t.Errorf("%s is recorded as %q, want the prefix %q", tests[i].name, r.Name,
					tests[i].prefix)
			}
			if strings.Contains(string(line), "s3cr3t") {
				t.Errorf("the record contains the secret: %s", line)
			}
			if r.Reason != "mine: "+r.Name+" is not allowed" {
				t.Errorf("the reason is %q, want the name %q in it", r.Reason, r.Name)
			}
			hidesOnlyQuery := strings.HasSuffix(tests[i].prefix, "?…") ||
				strings.HasSuffix(tests[i].prefix, "#…")
			if hidesOnlyQuery && bodies == audit.BodiesDigest {
				query := strings.TrimPrefix(tests[i].name, strings.TrimSuffix(tests[i].prefix, "…"))
				values, err := audit.OpenValueHasher(file, "")
				if err != nil {
					t.Fatal(err)
				}
				if want := tests[i].prefix + values.Hash(query); r.Name != want {
					t.Errorf("%s is recorded as %q, want %q", tests[i].name, r.Name, want)
				}
			}
			names[r.Name] = true
		}
		if bodies == audit.BodiesDigest && len(names) != len(tests) {
			t.Errorf("%d different names, want %d: different queries have different hashes",
				len(names), len(tests))
		}
	}
}
