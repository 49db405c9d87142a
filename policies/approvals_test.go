package policies_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/policies"
)

func TestApprovals(t *testing.T) {
	now := time.Now()
	a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals"),
		Servers: map[string]string{"a": "npx a"}, Now: func() time.Time { return now }}
	submit := func() string {
		t.Helper()
		how, err := a.Submit(called("x", `{"secret":"s3cr3t","n":1.0}`), "it is large", `secret: [masked]`)
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
			t.Fatalf("Approve returned %+v, error %v; want the call of x on server a", p, err)
		}
	}
	sameRequest := called("x", `{ "n": 1.0, "secret": "s3cr3t" }`)

	id := submit()
	if a.Consume(sameRequest) {
		t.Error("a waiting request counts as approved")
	}
	if all, err := a.List(); err != nil || len(all) != 1 || all[0].ID != id ||
		all[0].Reason != "it is large" || all[0].Approved {
		t.Errorf("List returned %+v, error %v; want the waiting request", all, err)
	}
	approve(id)
	for name, consume := range map[string]func() bool{
		"other arguments": func() bool {
			return a.Consume(called("x", `{"secret":"s3cr3t","n":2}`))
		},
		"another tool": func() bool {
			return a.Consume(called("y", `{"secret":"s3cr3t","n":1.0}`))
		},
		"another principal": func() bool {
			m := called("x",
				`{"secret":"s3cr3t","n":1.0}`)
			m.Principal = identity.FromID("bob")
			return a.Consume(m)
		},
		"another server": func() bool {
			m := called("x",
				`{"secret":"s3cr3t","n":1.0}`)
			m.Server = "b"
			return a.Consume(m)
		},
		"another Gatekit's server of the same name": func() bool {
			return (&policies.Approvals{Dir: a.Dir, Servers: map[string]string{"a": "npx b"},
				Now: a.Now}).Consume(sameRequest)
		},
	} {
		if consume() {
			t.Errorf("%s: the approval is also valid for this request", name)
		}
	}
	if how, err := a.Submit(sameRequest, "it is large", ""); err != nil ||
		how != "approved in the meantime: retry" {
		t.Errorf("Submit of an approved request returned %q, error %v; want that the request was "+
			"approved", how, err)
	}
	files, _ := filepath.Glob(filepath.Join(a.Dir, "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if info, _ := os.Stat(f); err != nil || strings.Contains(string(b), "s3cr3t") ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s contains %q, error %v; want mode 0600, and no argument", f, b, err)
		}
	}
	if !a.Consume(sameRequest) || a.Consume(sameRequest) {
		t.Error("an approval is not valid for exactly one call")
	}

	approve(submit())
	now = now.Add(11 * time.Minute)
	if a.Consume(sameRequest) {
		t.Error("an expired approval is valid")
	}
	id = submit()
	now = now.Add(11 * time.Minute)
	if _, err := a.Approve(id); err == nil || !strings.Contains(err.Error(),
		"no request "+id+" waits") {
		t.Errorf("Approve of an expired request: error %v, want that no request waits", err)
	}
	for _, bad := range []string{"../../etc/passwd", "", "x"} {
		if _, err := a.Approve(bad); err == nil || !strings.Contains(err.Error(), "is not the id") {
			t.Errorf("Approve(%q): error %v, want that this is not an id", bad, err)
		}
	}
	if all, err := a.List(); err != nil || len(all) != 0 {
		t.Errorf("List returned %+v, error %v; want no requests", all, err)
	}
}

// An approval is for one request, of any method. A request with other params or another _meta is
// another request. Only the progress token and the trace parent may differ.
func TestApprovalIsForAllMembersOfARequest(t *testing.T) {
	a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
	request := func(method, params string) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(params)), mcp.ToServer, "")
	}
	for _, c := range []struct{ method, approved, other, same string }{
		{"acme/delete", `{"id":1}`, `{"id":2}`, `{"_meta":{"progressToken":7},"id":1}`},
		{"tools/call", `{"_meta":{"tenant":"a"},"name":"x"}`, `{"_meta":{"tenant":"b"},"name":"x"}`,
			`{"name":"x","_meta":{"progressToken":"p","tenant":"a"}}`},
		{"tools/call", `{"_meta":{"progressToken":1},"name":"x2"}`,
			`{"_meta":{"progressToken":1,"a":1},"name":"x2"}`, `{"name":"x2","_meta":{"traceparent":` +
				`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`},
		{"tools/call", `{"name":"x3"}`, `{"name":"x3","_meta":{"traceparent":"to be sent"}}`,
			`{"name":"x3","_meta":{}}`},
		{"tools/call", `{"name":"x4"}`, `{"name":"x4","_meta":"text"}`, `{"name":"x4"}`},
		{"completion/complete", `{"argument":{"name":"a","value":"b"}}`,
			`{"argument":{"name":"a","value":"c"}}`, `{"argument":{"value":"b","name":"a"}}`},
	} {
		how, err := a.Submit(request(c.method, c.approved), "it is odd", "")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(how, "gatekit approve ")
		id, _, _ := strings.Cut(rest, "`")
		if _, err := a.Approve(id); err != nil {
			t.Fatal(err)
		}
		if a.Consume(request(c.method, c.other)) {
			t.Errorf("%s: the approval of %s is valid for %s", c.method, c.approved, c.other)
		}
		if !a.Consume(request(c.method, c.same)) {
			t.Errorf("%s: the approval of %s is not valid for %s", c.method, c.approved, c.same)
		}
	}
}

func TestPendingApprovalsAreBoundedPerPrincipal(t *testing.T) {
	a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
	ask := func(principal string, n int) error {
		m := called("x", `{"n":`+strconv.Itoa(n)+`}`)
		m.Principal = identity.FromID(principal)
		_, err := a.Submit(m, "it is large", "")
		return err
	}
	for i := range 100 {
		if err := ask("mallory", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("mallory", 100); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("a request above the limit: error %v, want that too many requests wait", err)
	}
	if err := ask("mallory", 7); err != nil {
		t.Errorf("a request that already waits: error %v, want none", err)
	}
	if err := ask("ann", 1); err != nil {
		t.Errorf("a request of another principal: error %v, want none", err)
	}
}

// A process that ends while it uses an approval leaves a file behind. List removes this file when
// it is more than ten minutes old. A newer file may belong to a process that still runs.
func TestFilesOfEndedProcessesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
		must(t, os.Mkdir(a.Dir, 0o700))
		for name, age := range map[string]time.Duration{".old.taken": 10*time.Minute + time.Second,
			".new.taken": 10 * time.Minute} {
			file := filepath.Join(a.Dir, name)
			must(t, os.WriteFile(file, []byte("{}"), 0o600))
			must(t, os.Chtimes(file, time.Time{}, time.Now().Add(-age)))
		}
		if all, err := a.List(); err != nil || len(all) != 0 {
			t.Errorf("List returned %+v, error %v; want no requests", all, err)
		}
		left, err := os.ReadDir(a.Dir)
		if err != nil || len(left) != 1 || left[0].Name() != ".new.taken" {
			t.Errorf("the folder has the files %v, error %v; want only .new.taken", left, err)
		}
	})
}
