package stop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func stopOf(scope Scope) Stop {
	return Stop{Scope: scope, At: time.Unix(1, 0).UTC(), By: "user id 1", Reason: "r"}
}

func TestTheZeroGateRefusesEverything(t *testing.T) {
	var g Gate
	m := &mcp.Message{Server: "files"}
	if g.Refuses(m) == nil {
		t.Error("the zero Gate does not refuse a message")
	}
	if _, s := g.Begin(m); s == nil {
		t.Error("the zero Gate lets a write begin")
	}
	if drained := g.Set(nil); !isClosed(drained) {
		t.Error("the first Set waits for writes that cannot have begun")
	}
	if s := g.Refuses(m); s != nil {
		t.Errorf("a Gate without stops refuses a message: %v", s)
	}
}

func TestScope(t *testing.T) {
	m := &mcp.Message{Server: "files", Session: "s1", Principal: identity.FromID("token:ci")}
	for _, test := range []struct {
		scope  Scope
		covers bool
		text   string
	}{
		{Scope{}, true, "everything"},
		{Scope{Server: "files"}, true, `server "files"`},
		{Scope{Server: "file"}, false, `server "file"`},
		{Scope{Session: "s1"}, true, `session "s1"`},
		{Scope{Session: "s2"}, false, `session "s2"`},
		{Scope{Principal: "token:ci"}, true, `principal "token:ci"`},
		{Scope{Principal: "token:cd"}, false, `principal "token:cd"`},
		{Scope{Server: "files", Session: "s1", Principal: "token:ci"}, true,
			`server "files", principal "token:ci", session "s1"`},
		{Scope{Server: "files", Session: "s2"}, false, `server "files", session "s2"`},
	} {
		if got := test.scope.Covers(m); got != test.covers {
			t.Errorf("%s covers the message: %v, want %v", test.scope, got, test.covers)
		}
		if got := test.scope.String(); got != test.text {
			t.Errorf("the scope is printed as %s, want %s", got, test.text)
		}
	}
}

// The record of a stop is written when drained is closed. So drained must wait for every write that
// began before, and for none that came later.
func TestSetWaitsForTheWritesThatHaveBegun(t *testing.T) {
	var g Gate
	g.Set(nil)
	files, memory := &mcp.Message{Server: "files"}, &mcp.Message{Server: "memory"}
	one, _ := g.Begin(files)
	two, _ := g.Begin(memory)
	drained := g.Set([]Stop{stopOf(Scope{Server: "files"})})
	if _, s := g.Begin(files); s == nil {
		t.Error("a write of the stopped server begins after Set")
	}
	later, s := g.Begin(memory)
	if s != nil {
		t.Errorf("a write of another server is refused: %v", s)
	}
	one.End()
	if isClosed(drained) {
		t.Error("drained is closed while a write is going on")
	}
	two.End()
	if !isClosed(drained) {
		t.Error("drained is open although all earlier writes have ended")
	}
	next := g.Set(nil)
	if isClosed(next) {
		t.Error("drained is closed while a later write is going on")
	}
	later.End()
	if !isClosed(next) {
		t.Error("drained is open although the later write has ended")
	}
}

// Many writers and stops at the same time: no write is going on after drained is closed.
func TestNoWriteAfterDrained(t *testing.T) {
	var g Gate
	g.Set(nil)
	var mu sync.Mutex
	moved, stopped := 0, false
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				w, s := g.Begin(&mcp.Message{})
				if s != nil {
					return
				}
				mu.Lock()
				if moved++; stopped {
					t.Error("a message moved after the stop")
				}
				mu.Unlock()
				w.End()
			}
		})
	}
	for {
		mu.Lock()
		n := moved
		mu.Unlock()
		if n > 1000 {
			break
		}
		time.Sleep(time.Microsecond)
	}
	<-g.Set([]Stop{stopOf(Scope{})})
	mu.Lock()
	stopped = true
	mu.Unlock()
	all.Wait()
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Stop){
		"no reason":         func(s *Stop) { s.Reason = " " },
		"two lines":         func(s *Stop) { s.Reason = "a\nb" },
		"a long reason":     func(s *Stop) { s.Reason = strings.Repeat("x", maxText+1) },
		"nobody":            func(s *Stop) { s.By = "" },
		"no time":           func(s *Stop) { s.At = time.Time{} },
		"invalid UTF-8":     func(s *Stop) { s.Server = "\xff" },
		"a long session":    func(s *Stop) { s.Session = strings.Repeat("x", maxName+1) },
		"a control in who":  func(s *Stop) { s.By = "a\x1b" },
		"a long principal":  func(s *Stop) { s.Principal = strings.Repeat("x", maxName+1) },
		"a control in name": func(s *Stop) { s.Server = "a\x00" },
	} {
		s := stopOf(Scope{Server: "files"})
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if s.Validate() == nil {
			t.Errorf("a stop with %s is valid", name)
		}
	}
}

func none([]Stop) error { return nil }

func TestKeeperKeepsStops(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	k := Open(folder)
	var missing *NotStopped
	if err := k.Resume(Scope{}, true, none); !errors.As(err, &missing) {
		t.Errorf("the end of a stop that is not in force: %v", err)
	}
	if k := Open(folder); k.Fault() != nil {
		t.Errorf("a failed resume leaves a folder that stops everything: %v", k.Fault())
	}
	files, all := stopOf(Scope{Server: "files"}), stopOf(Scope{})
	for _, s := range []Stop{files, all} {
		if _, err := k.Stop(s); err != nil {
			t.Fatal(err)
		}
	}
	files.Reason = "another reason"
	if _, err := k.Stop(files); err != nil {
		t.Fatal(err)
	}
	again := Open(folder)
	if got := again.List(); len(got) != 2 || got[0] != all || got[1] != files {
		t.Errorf("after a restart, the stops are %v", got)
	}
	if again.Gate.Refuses(&mcp.Message{Server: "x"}) == nil {
		t.Error("after a restart, a message passes")
	}

	refused := errors.New("disk full")
	if err := again.Resume(Scope{}, false, func([]Stop) error {
		return refused
	}); !errors.Is(err, refused) || len(again.List()) != 2 {
		t.Errorf("a resume without a record: %v, %v", err, again.List())
	}
	if err := again.Resume(Scope{Server: "x"}, false, none); !errors.As(err, &missing) ||
		!strings.Contains(err.Error(), `everything; server "files"`) {
		t.Errorf("the resume of another scope: %v", err)
	}
	if err := again.Resume(Scope{}, false, none); err != nil {
		t.Fatal(err)
	}
	if m := (&mcp.Message{Server: "x"}); again.Gate.Refuses(m) != nil ||
		again.Gate.Refuses(&mcp.Message{Server: "files"}) == nil {
		t.Error("the resume of everything ended the stop of the server, or not its own")
	}
	if got := Open(folder).List(); len(got) != 1 || got[0] != files {
		t.Errorf("after the resume, the stops on disk are %v", got)
	}
}

// Two processes of gatekit wrap have one folder. Neither loses a stop of the other.
func TestKeepersOfOneFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "wrap")
	a, b := Open(folder), Open(folder)
	a.Stop(stopOf(Scope{Server: "one"}))
	b.Stop(stopOf(Scope{Server: "two"}))
	if got := Open(folder).List(); len(got) != 2 {
		t.Errorf("the stops on disk are %v, want two", got)
	}
	if err := a.Resume(Scope{Server: "two"}, false, none); err != nil {
		t.Error(err)
	}
	if got := Open(folder).List(); len(got) != 1 || got[0].Server != "one" {
		t.Errorf("the stops on disk are %v, want the first", got)
	}
}

func TestUnreadableStops(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"no JSON":         func(f string) error { return os.WriteFile(f, []byte("{"), 0o600) },
		"removed":         os.Remove,
		"empty":           func(f string) error { return os.Truncate(f, 0) },
		"readable to all": func(f string) error { return os.Chmod(f, 0o644) },
		"an unknown member": func(f string) error {
			return os.WriteFile(f, []byte(`{"version":1,"stops":[],"x":1}`), 0o600)
		},
		"an invalid stop": func(f string) error {
			return os.WriteFile(f, []byte(`{"version":1,"stops":[{"by":"x"}]}`), 0o600)
		},
		"an open folder": func(f string) error { return os.Chmod(filepath.Dir(f), 0o777) },
		"a link": func(f string) error {
			return errors.Join(os.Rename(f, f+"2"), os.Symlink(f+"2", f))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "stops")
			k := Open(folder)
			if _, err := k.Stop(stopOf(Scope{Server: "files"})); err != nil {
				t.Fatal(err)
			}
			if err := k.Resume(Scope{}, true, none); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(folder, fileName)); err != nil {
				t.Fatal(err)
			}
			k = Open(folder)
			if k.Fault() == nil || k.Gate.Refuses(&mcp.Message{Server: "x"}) == nil {
				t.Errorf("the fault is %v, and a message passes", k.Fault())
			}
			if drained, err := k.Stop(stopOf(Scope{Server: "y"})); drained == nil || err != nil &&
				name != "an open folder" {
				t.Errorf("a further stop: %v", err)
			}
			if err := k.Resume(Scope{}, false, none); err == nil {
				t.Error("the stop of unknown stops ends without all")
			}
			if name == "an open folder" {
				os.Chmod(folder, 0o700)
			}
			if err := k.Resume(Scope{}, true, none); err != nil {
				t.Fatal(err)
			}
			if k := Open(folder); k.Fault() != nil || len(k.List()) != 0 {
				t.Errorf("after the resume: %v, %v", k.Fault(), k.List())
			}
		})
	}
}

// While the stops of others are not known, everything is stopped, also what begins and ends
// meanwhile. None of this is on disk.
func TestUnknownStops(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "stops")
	k, m := Open(folder), &mcp.Message{Server: "files"}
	w, _ := k.Gate.Begin(m)
	unknown := Stop{By: "Gatekit", At: time.Unix(1, 0), Reason: "not known"}
	drained := k.SetUnknown(&unknown)
	if isClosed(drained) {
		t.Error("drained is closed while a write is going on")
	}
	w.End()
	if s := k.Gate.Refuses(m); !isClosed(drained) || s == nil || *s != unknown {
		t.Errorf("a message is refused by %v, want %v", s, unknown)
	}
	files := stopOf(Scope{Server: "files"})
	if _, err := k.Stop(files); err != nil {
		t.Fatal(err)
	}
	if got := k.List(); len(got) != 2 || got[0] != unknown || got[1] != files {
		t.Errorf("the stops in force are %v", got)
	}
	if got := k.Unknown(); got == nil || *got != unknown {
		t.Errorf("the stop of everything is %v, want %v", got, unknown)
	}
	if err := k.Resume(files.Scope, false, none); err != nil {
		t.Fatal(err)
	}
	if k.Gate.Refuses(m) == nil {
		t.Error("the end of another stop ends the stop of everything")
	}
	if _, err := k.Stop(files); err != nil {
		t.Fatal(err)
	}
	k.SetUnknown(nil)
	if k.Gate.Refuses(m) == nil || k.Gate.Refuses(&mcp.Message{Server: "x"}) != nil {
		t.Error("after the stops are known, the stop of one server is not the only one")
	}
	if got := k.Unknown(); got != nil {
		t.Errorf("after the stops are known, the stop of everything is %v", got)
	}
	if got := Open(folder).List(); len(got) != 1 || got[0] != files {
		t.Errorf("the stops on disk are %v", got)
	}
}

func TestTooManyStops(t *testing.T) {
	k := Open("")
	for i := range maxStops {
		k.stops = append(k.stops, stopOf(Scope{Server: "s" + strings.Repeat("x", i)}))
	}
	if drained, err := k.Stop(stopOf(Scope{})); err == nil || drained != nil {
		t.Error("more stops than the limit are kept")
	}
	if _, err := k.Stop(k.stops[0]); err != nil {
		t.Errorf("a stop of the same scope is refused: %v", err)
	}
}
