package pins

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func exampleServer(t testing.TB) *Server {
	s := &Server{Start: Start{Command: "npx", Args: []string{"-y", "@acme/server@1.4.2"},
		Env: []string{"TOKEN"}}, Package: SourceOf("npx", []string{"-y", "@acme/server@1.4.2"}),
		ServerInfo:   Canonical([]byte(`{"version":"1.4.2","name":"acme"}`)),
		Capabilities: Canonical([]byte(`{"tools":{}}`))}
	tool, _ := item(t, Tool, currentsTool).Learn(nil, here)
	for _, i := range []*Item{tool, item(t, Instructions, `"Be kind."`),
		item(t, Tool, `{"name":"b","description":"no \u202ebidi\u200b \ud83d\ude00\udb40\udc41"}`),
		item(t, Prompt, `{"name":"p"}`), item(t, Template, `{"name":"x","uriTemplate":"a:{b}"}`)} {
		s.Add(i)
	}
	return s
}

// The bytes of a lock file are the same on every machine and on every day.
func TestBytesOfALockNeverChange(t *testing.T) {
	want, err := os.ReadFile("testdata/gatekit.lock")
	if err != nil {
		t.Fatal(err)
	}
	l := &Lock{Servers: map[string]*Server{"z": {Start: Start{URL: "https://z.example/mcp"}},
		"acme": exampleServer(t)}}
	got, err := l.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	read, err := parse("gatekit.lock", want)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := read.Bytes(); !bytes.Equal(again, want) {
		t.Errorf("read and written again:\n%s", again)
	}
	if changes := read.Servers["acme"].Compare(exampleServer(t)); len(changes) > 0 {
		t.Errorf("the read server differs: %+v", changes)
	}
	for _, r := range string(want) {
		if r == '\u202e' || r == '\u200b' || r == '\U000e0041' {
			t.Errorf("the file has the invisible character %U", r)
		}
	}
}

func TestABrokenLockIsRefusedWithItsLine(t *testing.T) {
	whole, err := os.ReadFile("testdata/gatekit.lock")
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(string(whole), old) {
			t.Fatalf("the lock has no %q", old)
		}
		return strings.Replace(string(whole), old, new, 1)
	}
	lineOf := func(text string) int {
		return 1 + strings.Count(string(whole[:bytes.Index(whole, []byte(text))]), "\n")
	}
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "1: the file is empty"},
		{"no JSON", "version = 1\n", "1: the file is not valid JSON"},
		{"no version", "{}\n", "1: the file has no version"},
		{"newer", replace(`"version": 1`, `"version": 2`), "2: the file has version 2, but this " +
			"Gatekit reads version 1"},
		{"half written", string(whole[:len(whole)/2]), ": the file is not valid JSON"},
		{"in conflict", replace(`    "acme"`, "<<<<<<< HEAD\n    \"acme\""), "4: the file has merge " +
			"conflict markers"},
		{"unknown key", replace(`"launch"`, `"lunch"`), fmt.Sprint(lineOf(`"launch"`)) +
			": /servers/acme/lunch: unknown object member name"},
		{"duplicate server", replace(`"z"`, `"acme"`), fmt.Sprint(lineOf(`"z"`)) +
			": the file is not valid JSON: duplicate object member name"},
		{"edited text", replace("Lists runs.", "Lists cars."), fmt.Sprint(lineOf(`"currents-get-runs": {`)) +
			`: server "acme": tool "currents-get-runs": the digest does not match the definition`},
		{"edited hole", replace("${date}", "${path}"), "the digest does not match"},
		{"removed hole", replace("${date}", "2026-10-23"), "there is no string with a hole"},
		{"another name", replace(`"p": {`, `"q": {`), `the definition has another name, "p"`},
		{"wrong type", replace(`"command": "npx"`, `"command": 7`), ": /servers/acme/launch"},
		{"trailing bytes", string(whole) + "{}", "the file is not valid JSON"},
	} {
		path := filepath.Join(t.TempDir(), "gatekit.lock")
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Read(path)
		if _, ok := errors.AsType[*ReadError](err); !ok || l != nil ||
			!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A file that is cut off anywhere is refused.
func TestEveryCutOffLockIsRefused(t *testing.T) {
	whole, err := os.ReadFile("testdata/gatekit.lock")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) - 1 {
		if _, err := parse("l", whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(whole))
		}
	}
}

func TestALockIsWrittenOnlyWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatekit.lock")
	read := func() *Lock {
		t.Helper()
		l, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := read()
	if !l.IsNew() {
		t.Error("a file that does not exist is not new")
	}
	other := read()
	l.Servers["acme"] = exampleServer(t)
	if written, err := l.Write(); err != nil || !written {
		t.Fatalf("written %t, %v", written, err)
	}
	if written, err := l.Write(); err != nil || written {
		t.Errorf("the same content: written %t, %v", written, err)
	}
	other.Servers["b"] = exampleServer(t)
	if _, err := other.Write(); !errors.Is(err, ErrChanged) {
		t.Errorf("a lock that another process has changed: %v", err)
	}
	l = read()
	if l.IsNew() || len(l.Servers) != 1 {
		t.Errorf("read %+v", l.Servers)
	}
	delete(l.Servers, "acme")
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write(); err == nil || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("a read-only file: %v", err)
	}
	link := filepath.Join(t.TempDir(), "gatekit.lock")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a folder is read")
	}
}

func TestServerChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Server)
		want   string // class and pointer or name of the first change
	}{
		{"arguments", func(s *Server) { s.Start.Args = []string{"evil"} }, "launch /launch"},
		{"an environment variable", func(s *Server) { s.Start.Env = nil }, "launch /launch"},
		{"version", func(s *Server) { s.Package.Version = "2" }, "package /package"},
		{"serverInfo", func(s *Server) { s.ServerInfo = nil }, "decoration /serverInfo"},
		{"instructions", func(s *Server) { s.Add(item(t, Instructions, `"Be unkind."`)) },
			"text "},
		{"no instructions", func(s *Server) { s.Instructions = nil }, "gone "},
		{"a new tool", func(s *Server) { s.Add(item(t, Tool, `{"name":"n"}`)) }, "new n"},
		{"a missing tool", func(s *Server) { delete(s.Tools, "b") }, "gone b"},
		{"a renamed tool", func(s *Server) {
			delete(s.Tools, "b")
			s.Add(item(t, Tool, `{"name":"c"}`))
		}, "new c"},
		{"a second tool with the same name", func(s *Server) {
			s.Add(item(t, Tool, `{"name":"b","description":"other"}`))
		}, "text /description"},
		{"the same tool twice", func(s *Server) { s.Add(item(t, Prompt, `{"name":"p"}`)) }, ""},
		{"a new resource", func(s *Server) {
			s.Add(item(t, Resource, `{"name":"r","uri":"a:b"}`))
		}, "new a:b"},
	} {
		live := exampleServer(t)
		c.change(live)
		changes, got := exampleServer(t).Compare(live), ""
		if len(changes) > 0 {
			got = string(changes[0].Class) + " " + changes[0].Pointer
			if changes[0].Pointer == "" {
				got += changes[0].Name
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%+v)", c.name, got, c.want, changes)
		}
	}
}

// If resources are no longer pinned, the resources in the lock are not gone.
func TestResourcesThatAreNotListedAreNotGone(t *testing.T) {
	pinned := exampleServer(t)
	pinned.Add(item(t, Resource, `{"name":"r","uri":"a:b"}`))
	if changes := pinned.Compare(exampleServer(t)); len(changes) > 0 {
		t.Errorf("%+v", changes)
	}
}

// Two tools that swap their descriptions are two changes.
func TestSwappedDescriptionsAreTwoChanges(t *testing.T) {
	a, b := &Server{}, &Server{}
	a.Add(item(t, Tool, `{"name":"x","description":"1"}`))
	a.Add(item(t, Tool, `{"name":"y","description":"2"}`))
	b.Add(item(t, Tool, `{"name":"x","description":"2"}`))
	b.Add(item(t, Tool, `{"name":"y","description":"1"}`))
	if changes := a.Compare(b); len(changes) != 2 {
		t.Errorf("%+v", changes)
	}
}

// Pinning twice changes nothing, although the second machine has another folder and another day.
func TestApprovingAgainKeepsTheBytes(t *testing.T) {
	first := exampleServer(t)
	later := &Server{Start: first.Start, Package: first.Package, ServerInfo: first.ServerInfo,
		Capabilities: first.Capabilities}
	for _, i := range first.Items() {
		later.Add(i)
	}
	later.Add(item(t, Tool, strings.Replace(currentsTool, "2026-10-23", "2027-01-01", 1)))
	delete(later.Tools, "currents-get-runs")
	later.Add(item(t, Tool, strings.Replace(currentsTool, "2026-10-23", "2027-01-01", 1)))
	learned, unstable := later.Learn(later, Surroundings{Now: time.Unix(0, 0)})
	if len(unstable) > 0 {
		t.Errorf("unstable: %v", unstable)
	}
	a := &Lock{Servers: map[string]*Server{"s": first}}
	b := &Lock{Servers: map[string]*Server{"s": first.Approve(later, learned)}}
	x, _ := a.Bytes()
	y, _ := b.Bytes()
	if !bytes.Equal(x, y) {
		t.Errorf("the bytes differ:\n%s\n%s", x, y)
	}
}

func TestPackagesOfCommands(t *testing.T) {
	for command, want := range map[string]Source{
		"npx -y @acme/server@1.4.2 --x":           {NPM: "@acme/server", Version: "1.4.2"},
		"npx server":                              {NPM: "server"},
		"/usr/bin/npx --package=a@2 run":          {NPM: "a", Version: "2"},
		"npm exec -y a@1.0.0 -- --x":              {NPM: "a", Version: "1.0.0"},
		"npm x --package=a@2 run":                 {NPM: "a", Version: "2"},
		"npm install a":                           {},
		"uvx --from mcp-git==1.0 mcp-git":         {PyPI: "mcp-git", Version: "1.0"},
		"uvx mcp-git@1.0":                         {PyPI: "mcp-git", Version: "1.0"},
		"docker run -i --rm -e A=b acme/mcp:1 go": {Image: "acme/mcp:1"},
		"node server.js":                          {},
	} {
		words := strings.Fields(command)
		if got := SourceOf(words[0], words[1:]); got != want {
			t.Errorf("%s: %#v, want %#v", command, got, want)
		}
	}
}

// A lock that is read and written again has the same meaning, and writing is a fixed point.
func FuzzRead(f *testing.F) {
	whole, err := os.ReadFile("testdata/gatekit.lock")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"servers":{"a":{"tools":null,"resources":{}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parse("l", b)
		if err != nil {
			return
		}
		first, err := l.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse("l", first)
		if err != nil {
			t.Fatalf("the written lock cannot be read: %v\n%s", err, first)
		}
		for name, s := range l.Servers {
			if changes := s.Compare(again.Servers[name]); len(changes) > 0 {
				t.Errorf("server %q changed: %+v", name, changes)
			}
		}
		if second, _ := again.Bytes(); !bytes.Equal(first, second) {
			t.Errorf("written\n%s\nand then\n%s", first, second)
		}
	})
}

func largeServer(t testing.TB) *Server {
	s := &Server{}
	for n := range 10_000 {
		s.Add(item(t, Tool, fmt.Sprintf(`{"name":"tool-%d","description":"Reads page %d of the `+
			`book.","inputSchema":{"type":"object","properties":{"a":{"type":"string",`+
			`"description":"The page."}},"required":["a"]}}`, n, n)))
	}
	return s
}

func TestTenThousandItems(t *testing.T) {
	l := &Lock{Servers: map[string]*Server{"s": largeServer(t)}}
	b, err := l.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	read, err := parse("l", b)
	if err != nil {
		t.Fatal(err)
	}
	if changes := read.Servers["s"].Compare(largeServer(t)); len(changes) > 0 {
		t.Errorf("%d changes", len(changes))
	}
}

func BenchmarkParseAndCompareTenThousandItems(b *testing.B) {
	s := largeServer(b)
	raw := make([][]byte, 0, 10_000)
	for _, i := range s.Items() {
		raw = append(raw, i.Definition())
	}
	for b.Loop() {
		live := &Server{}
		for _, r := range raw {
			i, err := NewItem(Tool, r)
			if err != nil {
				b.Fatal(err)
			}
			live.Add(i)
		}
		if len(s.Compare(live)) > 0 {
			b.Fatal("changed")
		}
	}
}

// What only other principals see stays approved.
func TestItemsOfOtherPrincipalsAreKept(t *testing.T) {
	old, live := &Server{}, &Server{}
	for _, name := range []string{"a", "b"} {
		old.Add(item(t, Tool, `{"name":"`+name+`"}`))
	}
	old.Add(item(t, Prompt, `{"name":"p"}`))
	live.Add(item(t, Tool, `{"name":"b","title":"changed"}`))
	approved := old.Approve(live, live)
	approved.KeepOthers(old)
	live.Add(item(t, Tool, `{"name":"a"}`))
	live.Add(item(t, Prompt, `{"name":"p"}`))
	if changes := approved.Compare(live); len(changes) > 0 {
		t.Errorf("the changes are %+v, want none", changes)
	}
}
