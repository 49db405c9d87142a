package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/policies"
)

func TestApprovals(t *testing.T) {
	now := time.Now()
	a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals"), Now: func() time.Time { return now }}
	wait := func() string {
		t.Helper()
		how, err := a.Wait(called("x", `{"secret":"s3cr3t","n":1.0}`), "it is large")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(how, "gatekit approve ")
		id, _, _ := strings.Cut(rest, "`")
		return id
	}
	approve := func(id string) {
		t.Helper()
		if p, err := a.Approve(id); err != nil || p.Server != "a" || p.Name != "x" {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	same := called("x", `{ "n": 1.0, "secret": "s3cr3t" }`)

	id := wait()
	if a.Take(same) {
		t.Error("a request that waits was taken for approved")
	}
	if all, err := a.List(); err != nil || len(all) != 1 || all[0].ID != id || all[0].Reason != "it is large" || all[0].Approved {
		t.Errorf("waiting: %+v, %v", all, err)
	}
	approve(id)
	for name, other := range map[string]func() bool{
		"other arguments":   func() bool { return a.Take(called("x", `{"secret":"s3cr3t","n":2}`)) },
		"another tool":      func() bool { return a.Take(called("y", `{"secret":"s3cr3t","n":1.0}`)) },
		"another principal": func() bool { m := called("x", `{"secret":"s3cr3t","n":1.0}`); m.Principal = "bob"; return a.Take(m) },
		"another server":    func() bool { m := called("x", `{"secret":"s3cr3t","n":1.0}`); m.Server = "b"; return a.Take(m) },
	} {
		if other() {
			t.Errorf("%s: was approved, too", name)
		}
	}
	files, _ := filepath.Glob(filepath.Join(a.Dir, "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if info, _ := os.Stat(f); err != nil || strings.Contains(string(b), "s3cr3t") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %s", f, err, b)
		}
	}
	if !a.Take(same) || a.Take(same) {
		t.Error("an approval is good once")
	}

	approve(wait())
	now = now.Add(11 * time.Minute)
	if a.Take(same) {
		t.Error("an approval was good after its time")
	}
	id = wait()
	now = now.Add(11 * time.Minute)
	if _, err := a.Approve(id); err == nil || !strings.Contains(err.Error(), "no request "+id+" waits") {
		t.Errorf("a request that waited too long: %v", err)
	}
	for _, bad := range []string{"../../etc/passwd", "", "x"} {
		if _, err := a.Approve(bad); err == nil || !strings.Contains(err.Error(), "is no id") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if all, err := a.List(); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}
