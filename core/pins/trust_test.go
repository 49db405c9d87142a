package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// trustTest is a guard that trusts what it sees first, and its lock file.
type trustTest struct {
	*guardTest
	path    string
	trusted []string // names of the items that were recorded
	err     error    // of the recorder
	digest  string   // that was recorded last

	meanwhile  func()  // is called while the items are recorded
	notWritten []error // of the items that were recorded and not written
}

func newTrustTest(t testing.TB) *trustTest {
	tt := &trustTest{guardTest: &guardTest{TB: t},
		path: filepath.Join(t.TempDir(), "gatekit.lock")}
	tt.restart(GuardedServer{Start: Start{Command: "server"}})
	return tt
}

// restart makes a guard that has read the lock file, as after a restart of Gatekit.
func (tt *trustTest) restart(s GuardedServer) {
	tt.Helper()
	lock, err := Read(tt.path)
	if err != nil {
		tt.Fatal(err)
	}
	s.Name, s.First = "s", Trust
	tt.use(NewGuard(GuardOptions{Lock: lock, Kinds: allKinds, Servers: []GuardedServer{s},
		Trusted: func(_ string, items []*Item, digest string) error {
			if tt.digest = digest; tt.meanwhile != nil {
				tt.meanwhile()
			}
			for _, i := range items {
				tt.trusted = append(tt.trusted, i.Name())
			}
			return tt.err
		},
		NotWritten: func(_ string, err error) error {
			tt.notWritten = append(tt.notWritten, err)
			return nil
		}}))
}

// What is seen first is in the lock file before a client gets it. Afterwards, it may not change,
// also after a restart.
func TestTrustAtFirstUse(t *testing.T) {
	g := newTrustTest(t)
	if g.isDenied("tools/call", `{"name":"a"}`) {
		t.Error("a tool that was not seen yet is denied")
	}
	g.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"b"}`}, "a", "b")
	if lock, err := Read(g.path); err != nil || lock.Digest() != g.digest {
		t.Errorf("the recorded digest %s is not that of the file (%v)", g.digest, err)
	}
	g.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"b","title":"evil"}`}, "a")
	m := mcp.NewResponse(`1`, []byte(`{"instructions":"Be kind."}`))
	m.Method, m.Direction = "initialize", mcp.ToClient
	if _, has := g.pass(m, "ann").Get("/instructions"); !has {
		t.Errorf("the first instructions are removed: %s", g.last.Reason)
	}
	g.restart(GuardedServer{Start: Start{Command: "server"}})
	g.wantListed("tools/list", []string{`{"name":"a","title":"evil"}`, `{"name":"c"}`}, "c")
	if !g.isDenied("tools/call", `{"name":"a"}`) {
		t.Error("the changed tool can be used")
	}
	m = mcp.NewResponse(`1`, []byte(`{"instructions":"Be evil."}`))
	m.Method, m.Direction = "initialize", mcp.ToClient
	if _, has := g.pass(m, "ann").Get("/instructions"); has {
		t.Error("the changed instructions pass")
	}
	if got := strings.Join(g.trusted, " "); got != "a b  c" {
		t.Errorf("%q were recorded, want a, b, the instructions and c", got)
	}
	g.restart(GuardedServer{Start: Start{Command: "other"}})
	g.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"d"}`})
	if !g.isDenied("tools/call", `{"name":"e"}`) {
		t.Error("a tool of a server that is started in another way can be used")
	}
}

// Today's date and the server's folder become holes.
func TestTrustLearnsHoles(t *testing.T) {
	g := newTrustTest(t)
	start := GuardedServer{Start: Start{Command: "server"}, Folders: []string{"/home/ann"}}
	tool := func(day time.Time, folder string) string {
		return fmt.Sprintf(`{"name":"a","description":"As of %s, below %s/img."}`,
			day.Format(time.DateOnly), folder)
	}
	g.restart(start)
	g.wantListed("tools/list", []string{tool(time.Now(), "/home/ann")}, "a")
	g.restart(start)
	g.wantListed("tools/list", []string{tool(time.Now().AddDate(0, 0, 40), "/home/bob")}, "a")
	g.wantListed("tools/list", []string{strings.Replace(tool(time.Now(), "/home/ann"), "below",
		"mail", 1)})
}

// An item that cannot be written or recorded is held back, in the list and in use.
func TestTrustThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(g *trustTest)
		want  string
	}{
		"a link": {func(g *trustTest) { os.Symlink("other", g.path) }, "is a symbolic link"},
		"broken": {func(g *trustTest) { os.WriteFile(g.path, []byte("{"), 0o600) },
			"gatekit.lock:1: "},
		"read-only": {func(g *trustTest) {
			os.WriteFile(g.path, []byte("{\"version\":1,\"servers\":{}}\n"), 0o400)
		}, "is read-only"},
		"not recorded": {func(g *trustTest) { g.err = errors.New("disk full") }, "disk full"},
		"too many": {func(g *trustTest) {
			s := largeServer(t)
			s.Start = Start{Command: "server"}
			_, err := Update(g.path, func(l *Lock) error {
				l.Servers["s"] = s
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}, "more than 10000 items"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTrustTest(t)
			c.spoil(g)
			g.wantListed("tools/list", []string{`{"name":"a"}`})
			if !strings.Contains(g.last.Reason, "1 new; not trusted at first use: ") ||
				!strings.Contains(g.last.Reason, c.want) {
				t.Errorf("the reason is %q, want %q", g.last.Reason, c.want)
			}
			g.hidden = pipeline.HiddenItems{} // as for another client
			if !g.isDenied("tools/call", `{"name":"a"}`) {
				t.Error("the hidden tool can be used")
			}
		})
	}
}

// Items that cannot be recorded are not in the lock file, so they are not approved after the next
// start either.
func TestTrustedItemsAreRecordedFirst(t *testing.T) {
	g := newTrustTest(t)
	g.err = errors.New("disk full")
	g.wantListed("tools/list", []string{`{"name":"a"}`})
	if _, err := os.Lstat(g.path); !os.IsNotExist(err) {
		t.Errorf("there is a lock file (%v), want none", err)
	}
	g.restart(GuardedServer{Start: Start{Command: "server"}})
	g.wantListed("tools/list", []string{`{"name":"a"}`})
	g.err = nil
	g.wantListed("tools/list", []string{`{"name":"a"}`}, "a")
	if got := len(g.notWritten); got != 0 {
		t.Errorf("%d items were reported as not written, want 0", got)
	}
}

// If the lock file cannot be written after the record, a second record says so.
func TestTrustThatIsRecordedAndNotWritten(t *testing.T) {
	g := newTrustTest(t)
	g.meanwhile = func() {
		if err := os.Mkdir(g.path, 0o700); err != nil {
			t.Error(err)
		}
	}
	g.wantListed("tools/list", []string{`{"name":"a"}`})
	if got := strings.Join(g.trusted, " "); got != "a" || len(g.notWritten) != 1 {
		t.Fatalf("%q were recorded, and %v was reported, want a and one error", got, g.notWritten)
	}
	if !strings.Contains(g.last.Reason, g.notWritten[0].Error()) {
		t.Errorf("the reason is %q, want the error %v", g.last.Reason, g.notWritten[0])
	}
}

// Two Gatekits with one lock file see different definitions at the same time: one of them wins, and
// the file is whole.
func TestTrustByTwoGatekits(t *testing.T) {
	a := newTrustTest(t)
	b := &trustTest{guardTest: &guardTest{TB: t}, path: a.path}
	b.restart(GuardedServer{Start: Start{Command: "server"}})
	var both sync.WaitGroup
	for i, g := range []*trustTest{a, b} {
		both.Go(func() {
			for n := range 10 {
				g.listed("tools/list", fmt.Sprintf(`{"name":"t%d","title":"by %d"}`, n, i))
			}
		})
	}
	both.Wait()
	lock, err := Read(a.path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lock.Servers["s"].Tools); n != 10 {
		t.Errorf("the lock file has %d tools, want 10", n)
	}
	for name, i := range lock.Servers["s"].Tools {
		for _, g := range []*trustTest{a, b} {
			g.hidden = pipeline.HiddenItems{}
			g.wantListed("tools/list", []string{string(i.Definition())}, name)
		}
		other := strings.NewReplacer("by 0", "by 1", "by 1", "by 0").Replace(
			string(i.Definition()))
		a.wantListed("tools/list", []string{other})
		b.wantListed("tools/list", []string{other})
	}
}

// With Keep, clients get the approved texts of changed items. An item that has changed in more than
// texts is hidden.
func TestGuardThatKeeps(t *testing.T) {
	for _, c := range []struct {
		name, approved, now, want string // want is "" if the tool is hidden
	}{
		{"a text", `{"name":"a","description":"Reads."}`, `{"name":"a","description":"Mails."}`,
			`{"name":"a","description":"Reads."}`},
		{"an added text", `{"name":"a"}`, `{"name":"a","title":"Obey"}`, `{"name":"a"}`},
		{"a removed text", `{"name":"a","title":"A"}`, `{"name":"a"}`, `{"name":"a","title":"A"}`},
		{"a text and decoration", `{"name":"a","title":"A"}`, `{"name":"a","title":"B","_meta":{}}`,
			`{"name":"a","title":"A","_meta":{}}`},
		{"a text in a schema",
			`{"name":"a","inputSchema":{"anyOf":[{"title":"X"},{"description":"b/c~"}]}}`,
			`{"name":"a","inputSchema":{"anyOf":[{"title":"X"},{"description":"evil"}]}}`,
			`{"name":"a","inputSchema":{"anyOf":[{"title":"X"},{"description":"b/c~"}]}}`},
		{"a text of annotations", `{"name":"a","annotations":{"title":"A"}}`,
			`{"name":"a","annotations":{"title":"B"}}`, `{"name":"a","annotations":{"title":"A"}}`},
		{"a shape", `{"name":"a","inputSchema":{"type":"object"}}`,
			`{"name":"a","inputSchema":{"type":"string"}}`, ""},
		{"a text and a shape", `{"name":"a","title":"A"}`,
			`{"name":"a","title":"B","inputSchema":{"type":"object"}}`, ""},
		{"a promise", `{"name":"a","annotations":{"readOnlyHint":true}}`, `{"name":"a"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuardTest(t, Keep, item(t, Tool, c.approved), item(t, Tool, `{"name":"z"}`))
			m := mcp.NewResponse(`1`, []byte(`{"tools":[{"name":"z"},`+c.now+`]}`))
			m.Method, m.Direction = "tools/list", mcp.ToClient
			got, ok := g.pass(m, "ann").Get("/tools/1")
			if string(got) != c.want || ok != (c.want != "") {
				t.Errorf("clients get %s, want %s", got, c.want)
			}
			action := "modify"
			if c.want == "" {
				action = "hide"
			}
			if g.last.Action != action || !strings.HasPrefix(g.last.Reason, "not as approved: 1 ") {
				t.Errorf("the record is %s %q, want %s", g.last.Action, g.last.Reason, action)
			}
			if denied := g.isDenied("tools/call", `{"name":"a"}`); denied != (c.want == "") {
				t.Errorf("the call is denied: %v, want %v", denied, !denied)
			}
			if got := g.guard.Waiting()["s"]; got != 1 {
				t.Errorf("%d items wait, want 1", got)
			}
		})
	}
}

// A text with a hole has no approved text that clients could get.
func TestGuardThatKeepsHidesTextsWithHoles(t *testing.T) {
	day := time.Date(2026, 10, 23, 0, 0, 0, 0, time.UTC)
	learned, ok := item(t, Tool, `{"name":"a","title":"A","description":"As of 2026-10-23."}`).
		Learn(nil, Surroundings{Now: day})
	if !ok || len(learned.Varies()) != 1 {
		t.Fatalf("the date is no hole: %s", learned.Definition())
	}
	g := newGuardTest(t, Keep, learned)
	g.wantListed("tools/list", []string{`{"name":"a","title":"A","description":"Obey."}`})
	g = newGuardTest(t, Keep, learned)
	m := mcp.NewResponse(`1`, []byte(
		`{"tools":[{"name":"a","title":"Evil","description":"As of 2026-12-01."}]}`))
	m.Method, m.Direction = "tools/list", mcp.ToClient
	got, _ := g.pass(m, "ann").Get("/tools/0")
	if want := `{"name":"a","title":"A","description":"As of 2026-12-01."}`; string(got) != want {
		t.Errorf("clients get %s, want %s", got, want)
	}
}

func TestGuardThatKeepsInstructions(t *testing.T) {
	g := newGuardTest(t, Keep, item(t, Instructions, `"Be kind."`))
	m := mcp.NewResponse(`1`, []byte(`{"instructions":"Be evil."}`))
	m.Method, m.Direction = "initialize", mcp.ToClient
	got, _ := g.pass(m, "ann").Get("/instructions")
	if string(got) != `"Be kind."` || g.last.Action != "modify" {
		t.Errorf("clients get %s, and the record is %s, want the approved text", got,
			g.last.Action)
	}
}

// Another package holds everything back only with HidePackage, and not if the lock has none.
func TestGuardOfAnotherPackage(t *testing.T) {
	old, now := Source{SHA256: "aa"}, Source{SHA256: "bb"}
	for _, c := range []struct {
		name     string
		approved Source
		hides    bool
		class    Class // that Moved reports
		denied   bool
	}{
		{"told", old, false, Package, false},
		{"hidden", old, true, Package, true},
		{"the same", now, true, "", false},
		{"not in the lock", Source{}, true, "", false},
	} {
		approved := &Server{Start: Start{Command: "./server"}, Package: c.approved}
		approved.Add(item(t, Tool, `{"name":"a"}`))
		g := &guardTest{TB: t}
		g.use(newGuard(&Lock{Servers: map[string]*Server{"s": approved}}, nil,
			GuardedServer{Start: approved.Start, Package: now, HidePackage: c.hides}))
		if got := g.guard.Moved()["s"]; got != c.class {
			t.Errorf("%s: the guard reports %q, want %q", c.name, got, c.class)
		}
		if got := g.isDenied("tools/call", `{"name":"a"}`); got != c.denied {
			t.Errorf("%s: the call is denied: %v, want %v", c.name, got, c.denied)
		}
		want := []string{"a"}
		if c.denied {
			want = nil
		}
		g.wantListed("tools/list", []string{`{"name":"a"}`}, want...)
	}
}
