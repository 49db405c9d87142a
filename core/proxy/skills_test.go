package proxy_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// skillFile returns the entry of a file in the resources of a skill.
func skillFile(uri, content string) string {
	return fmt.Sprintf(`{"uri":%q,"digest":"sha256:%x","size":%d}`, uri,
		sha256.Sum256([]byte(content)), len(content))
}

// skill returns the entry of a skill at a root URI, with a SKILL.md and further files.
func skill(root, text string, files ...string) string {
	all := append([]string{skillFile(root+"/SKILL.md", text)}, files...)
	return fmt.Sprintf(`{"uri":%q,"frontmatter":{"name":%q,"description":"d"},"resources":[%s]}`,
		root+"/SKILL.md", root[strings.LastIndexByte(root, '/')+1:], strings.Join(all, ","))
}

// skillServer returns a server with skills. contents are the results of resources/read, by URI.
func skillServer(contents map[string]string, skills ...string) *fakeServer {
	return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		uri, _ := m.Text("/uri")
		switch m.Method {
		case "initialize":
			return `{"protocolVersion":"2025-11-25","capabilities":{"resources":{},"extensions":` +
				`{"io.modelcontextprotocol/skills":{"directoryRead":true}}}}`
		case "skills/list":
			return `{"skills":[` + strings.Join(skills, ",") + `]}`
		case "skills/get":
			for _, s := range skills {
				if mcp.NewResponse("", []byte(s)).TextEquals("/uri", uri) {
					return `{"skill":` + s + `}`
				}
			}
			return `!-32602 no such skill`
		case "resources/list":
			return `{"resources":[]}`
		case "resources/templates/list":
			return `{"resourceTemplates":[]}`
		case "resources/read":
			if c, ok := contents[uri]; ok {
				return `{"contents":[` + c + `]}`
			}
			return `{"contents":[{"uri":"` + uri + `","text":"of no skill"}]}`
		case "resources/directory/read":
			return `{"resources":[{"uri":"` + uri + `/a"},{"uri":"` + uri +
				`/b"}],"nextCursor":"again"}`
		}
		return `{}`
	}}
}

func TestFilesOfSkillsAreCheckedAgainstTheirDigests(t *testing.T) {
	const uri, text = "skill://x/SKILL.md", "héllo"
	blob := base64.StdEncoding.EncodeToString([]byte(text))
	const mismatch = "!-31000 refused: the file of a skill does not match the digest and size in " +
		"the skill's entry: request skills/get to see whether the skill has changed"
	const ambiguous = "!-31000 refused: the file of a skill cannot be checked: it needs either a " +
		"text or a blob"
	one := func(member string) string { return `{"uri":"` + uri + `",` + member + `}` }
	other := `{"uri":"skill://y/SKILL.md","text":"evil"}`
	for _, c := range []struct {
		name, entry, read, contents string
		want                        string // the client's answer; "" for the contents
	}{
		{"the text that the entry lists", skill("skill://x", text), uri, one(`"text":"héllo"`), ""},
		{"the same text, escaped", skill("skill://x", text), uri, one(`"text":"h\u00e9llo"`), ""},
		{"the same bytes as a blob", skill("skill://x", text), uri, one(`"blob":"` + blob + `"`), ""},
		{"another text of the same size", skill("skill://x", text), uri, one(`"text":"hèllo"`), mismatch},
		{"another size", skill("skill://x", text), uri, one(`"text":"héllo\n"`), mismatch},
		{"another blob", skill("skill://x", text), uri, one(`"blob":"eHl6enk="`), mismatch},
		{"a blob that is no base64", skill("skill://x", text), uri, one(`"blob":"?"`),
			"!-31000 refused: the file of a skill cannot be checked: its blob is no base64"},
		{"a text and a blob", skill("skill://x", text), uri, one(`"text":"héllo","blob":"` + blob + `"`),
			ambiguous},
		{"neither a text nor a blob", skill("skill://x", text), uri, one(`"n":1`),
			ambiguous},
		{"two contents", skill("skill://x", text), uri, one(`"text":"héllo"`) + "," + other,
			"!-31000 refused: the file of a skill must have exactly one content"},
		{"a content with another URI", skill("skill://x", text), uri, other, mismatch},
		{"a file of the skill, returned for a read of another URI", skill("skill://x", text),
			"f:///z", one(`"text":"evil"`), mismatch},
		{"a file that no entry lists", skill("skill://x", text), "skill://x/new",
			`{"uri":"skill://x/new","text":"new"}`, ""},
		{"a digest in upper case", strings.Replace(skill("skill://x", text), `sha256:`, `SHA256:`, 1),
			uri, one(`"text":"héllo"`), mismatch},
		{"an entry without size", strings.Replace(skill("skill://x", text), `"size":6`, `"n":6`, 1),
			uri, one(`"text":"héllo"`), mismatch},
		{"a dynamic skill", `{"uri":"` + uri + `","frontmatter":{},"resources":"dynamic"}`, uri,
			one(`"text":"any"`), ""},
	} {
		for _, shownBy := range []string{"skills/list", "skills/get"} {
			for _, prefix := range []string{"always", "never"} {
				t.Run(c.name+" by "+shownBy+" with prefix "+prefix, func(t *testing.T) {
					w := open(t, map[string]*fakeServer{"a": skillServer(
						map[string]string{c.read: c.contents}, c.entry)},
						func(o *proxy.Options) { o.Naming.Prefix = prefix })
					w.call(t, "initialize", initializeParams)
					name := "a+"
					if prefix == "never" {
						name = ""
					}
					params := `{"uri":"` + name + uri + `"}`
					if shownBy == "skills/list" {
						params = `{}`
					}
					if got := w.call(t, shownBy, params); strings.HasPrefix(got, "!") {
						t.Fatalf("%s: got %s, want a result", shownBy, got)
					}
					got := w.call(t, "resources/read", `{"uri":"`+name+c.read+`"}`)
					want := c.want
					if want == "" {
						want = `{"contents":[` + strings.ReplaceAll(c.contents, `"uri":"`,
							`"uri":"`+name) + `]}`
						w.record.expect(t, "pass to_client response resources/read a "+c.read)
					} else {
						w.record.expect(t, "deny to_client response resources/read a "+c.read)
					}
					equal(t, "read", got, want)
				})
			}
		}
	}
}

func TestChangedEntryReplacesTheDigests(t *testing.T) {
	text := "old"
	a := skillServer(nil)
	answer := a.answer
	a.answer = func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
		switch m.Method {
		case "skills/get":
			return `{"skill":` + skill("skill://x", text) + `}`
		case "resources/read":
			return `{"contents":[{"uri":"skill://x/SKILL.md","text":"` + text + `"}]}`
		}
		return answer(ctx, m, h)
	}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	const uri = `{"uri":"a+skill://x/SKILL.md"}`
	read := func(want bool) {
		t.Helper()
		got := w.call(t, "resources/read", uri)
		equal(t, "the read of the text "+text+" succeeds", !strings.HasPrefix(got, "!"), want)
	}
	read(true) // the client has not been shown an entry
	w.call(t, "skills/get", uri)
	read(true)
	text = "new"
	read(false)
	w.call(t, "skills/get", uri)
	read(true)
}

func TestHiddenSkillCannotBeUsed(t *testing.T) {
	hide := pipeline.StageConfig{Name: "hides", Stage: stage(
		func(m *mcp.Message) pipeline.Verdict {
			v := pipeline.Verdict{Action: pipeline.Allow}
			if m.Method == "skills/list" && m.Kind == mcp.Response {
				v.Hide = []string{"skill://acme/evil/SKILL.md", "https://h.example/evil/SKILL.md",
					"file:///evil/SKILL.md"}
			}
			return v
		})}
	w := open(t, map[string]*fakeServer{"a": skillServer(nil, skill("skill://acme/evil", "x"),
		skill("skill://acme/evil/good", "of no skill"), skill("skill://acme",
			"of no skill"), skill("https://h.example/evil", "x"), skill("file:///evil", "x"))}, nil,
		hide)
	w.call(t, "initialize", initializeParams)
	if got := w.call(t, "skills/list", `{}`); strings.Contains(got, "evil/SKILL.md") ||
		!strings.Contains(got, "evil/good/SKILL.md") {
		t.Fatalf("skills/list returned %s, want the skill evil/good, and no hidden skill", got)
	}
	const refused = "!-31000 refused: the skill is hidden from this client"
	for _, c := range []struct {
		method, uri string
		refused     bool
	}{
		{"skills/get", "skill://acme/evil/SKILL.md", true},
		{"resources/read", "skill://acme/evil/SKILL.md", true},
		{"resources/read", "skill://acme/evil/scripts/run.sh", true},
		{"resources/directory/read", "skill://acme/evil", true},
		{"resources/directory/read", "skill://acme/evil/scripts", true},
		{"resources/subscribe", "skill://acme/evil/SKILL.md", true},
		{"resources/read", "SKILL://acme/evil/SKILL.md", true},
		{"resources/read", "skill://acme/EVIL/SKILL.md", true},
		{"resources/read", "skill://acme/%65vil/SKILL.md", true},
		{"resources/read", "skill://acme/%2565vil/SKILL.md", true},
		{"resources/read", "skill://acme/evil%2FSKILL.md", true},
		{"resources/read", `skill://acme\\evil\\SKILL.md`, true},
		{"resources/read", "skill://acme//evil/./SKILL.md", true},
		{"resources/read", "skill://acme/evil/good/../SKILL.md", true},
		{"resources/read", "skill://other/../acme/evil/SKILL.md", true},
		{"resources/read", "skill:///acme/evil/SKILL.md", true},
		{"resources/read", " skill://acme/evil/SKILL.md", true},
		{"resources/read", "skill://acme/evil/SKILL.md?x#y", true},
		{"resources/read", "skill://acme/evil?x=/../good", true},
		{"resources/read", "skill://acme/%25252525252565vil", true}, // encoded too often
		{"resources/read", "skill://" + strings.Repeat("a", 3000), true},
		{"resources/read", "https://h.example:443/evil/run.sh", true},
		{"resources/read", "https://u:p@H.example./evil/SKILL.md", true},
		{"resources/read", "https:h.example/evil/SKILL.md", true},
		{"resources/read", "file://localhost/evil/SKILL.md", true},
		{"resources/read", "https://h.example:444/evil/run.sh", false},
		{"skills/get", "skill://acme/evil/good/SKILL.md", false},
		{"resources/read", "skill://acme/evil/good/SKILL.md", false},
		{"skills/get", "skill://acme/SKILL.md", false},
		{"resources/read", "skill://acme/SKILL.md", false},
		{"resources/read", "skill://acme/evilness", false},
		{"resources/directory/read", "skill://acme", false},
		{"resources/read", "file:///acme/evil/SKILL.md", false},
	} {
		got := w.call(t, c.method, `{"uri":"a+`+c.uri+`"}`)
		equal(t, c.method+" of "+c.uri+" was refused: "+got, got == refused, c.refused)
	}
	w.record.expect(t, "deny to_server request skills/get a skill://acme/evil/SKILL.md",
		"deny to_server request resources/directory/read a skill://acme/evil/scripts")
}

func TestServerCannotAnswerWithAnotherSkill(t *testing.T) {
	a := &fakeServer{answer: fixedResults(map[string]string{
		"skills/get": `{"skill":` + skill("skill://evil", "x") + `}`})}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	equal(t, "skills/get", w.call(t, "skills/get", `{"uri":"a+skill://good/SKILL.md"}`),
		"!-31000 refused: the server answered with another skill than the client asked for")
}

func TestSkillDeniedInSkillsGetCannotBeRead(t *testing.T) {
	deny := pipeline.StageConfig{Name: "denies", Stage: stage(
		func(m *mcp.Message) pipeline.Verdict {
			if m.Method == "skills/get" && m.Kind == mcp.Response {
				return pipeline.Verdict{Action: pipeline.Deny}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	w := open(t, map[string]*fakeServer{"a": skillServer(nil, skill("skill://x", "x"))}, nil, deny)
	equal(t, "skills/get", w.call(t, "skills/get", `{"uri":"a+skill://x/SKILL.md"}`),
		"!-31000 refused by policy")
	equal(t, "resources/read", w.call(t, "resources/read", `{"uri":"a+skill://x/run.sh"}`),
		"!-31000 refused: the skill is hidden from this client")
}

func TestSkillsOfSeveralServersAreMerged(t *testing.T) {
	x, y := skill("skill://x", "x"), skill("skill://y", "y", skillFile("skill://y/a", "a"))
	for _, c := range []struct {
		resources string
		// prefixes of the skills x (only on server a) and y (on a and b); % is the server
		wantX, wantY string
	}{
		{"scheme", "a+", "%+"},
		{"prefix", "a__", "%__"},
		{"transparent", "", "%+"},
	} {
		t.Run(c.resources, func(t *testing.T) {
			servers := map[string]*fakeServer{"a": skillServer(nil, x, y), "b": skillServer(nil,
				skill("skill://y", "of b", skillFile("skill://y/b", "b"))),
				"c": serverAnswering(`{"capabilities":{"resources":{}}}`)}
			w := open(t, servers, func(o *proxy.Options) { o.Naming.Resources = c.resources })
			w.call(t, "initialize", initializeParams)
			add := func(entry, prefix string) string {
				return strings.ReplaceAll(entry, `"uri":"`, `"uri":"`+prefix)
			}
			yOf := func(server string) string { return strings.ReplaceAll(c.wantY, "%", server) }
			equal(t, "list", w.call(t, "skills/list", `{}`), `{"skills":[`+add(x, c.wantX)+","+
				add(y, yOf("a"))+","+add(skill("skill://y", "of b", skillFile("skill://y/b", "b")),
				yOf("b"))+`]}`)
			for _, p := range []string{c.wantX + "skill://x/SKILL.md", yOf("a") +
				"skill://y/SKILL.md", yOf("b") + "skill://y/SKILL.md"} {
				if got := w.call(t, "skills/get", `{"uri":"`+p+`"}`); !strings.Contains(got,
					`{"skill":{"uri":"`+p) {
					t.Errorf("skills/get of %s returned %s, want its entry", p, got)
				}
			}
			got := w.call(t, "resources/directory/read", `{"uri":"`+c.wantX+`skill://x/sub"}`)
			if !strings.HasPrefix(got, `{"resources":[{"uri":"`+c.wantX+`skill://x/sub/a"},`) {
				t.Errorf("the directory is %s, want the directory of server a", got)
			}
			for _, m := range servers["c"].seen() {
				if strings.HasPrefix(m, "skills/") {
					t.Errorf("server c, which has no skills, got %s", m)
				}
			}
		})
	}
}

func TestSkillIsFoundBeforeTheClientListsSkills(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": skillServer(nil, skill("skill://x", "x")),
		"b": skillServer(nil)}, func(o *proxy.Options) { o.Naming.Resources = "transparent" })
	w.call(t, "initialize", initializeParams)
	got := w.call(t, "resources/read", `{"uri":"skill://x/not/listed"}`)
	if !strings.Contains(got, "of no skill") {
		t.Errorf("resources/read returned %s, want the content from server a", got)
	}
}

func TestDirectoryIsBounded(t *testing.T) {
	a := skillServer(nil)
	w := open(t, map[string]*fakeServer{"a": a}, func(o *proxy.Options) {
		o.Limits.ListPages, o.Limits.ListItems = 4, 5
	})
	w.call(t, "initialize", initializeParams)
	params, cursor := `{"uri":"a+skill://x"}`, ""
	page := func() string {
		t.Helper()
		got := w.call(t, "resources/directory/read", params)
		cursor, _ = mcp.NewResponse("", []byte(got)).Text("/nextCursor")
		params = `{"uri":"a+skill://x","cursor":"` + cursor + `"}`
		return got
	}
	page()
	first := cursor
	page()
	equal(t, "the third page", page(), `!-32603 server "a" is not available: the directory has `+
		`more than 5 items ([limits] list_items)`)
	for name, params := range map[string]string{
		"the server's own cursor":    `{"uri":"a+skill://x","cursor":"again"}`,
		"another directory's cursor": `{"uri":"a+skill://y","cursor":"` + first + `"}`,
		"a cursor that is no string": `{"uri":"a+skill://x","cursor":7}`,
	} {
		if got := w.call(t, "resources/directory/read", params); !strings.HasPrefix(got,
			"!-32602 invalid cursor") {
			t.Errorf("%s: got %s, want the error invalid cursor", name, got)
		}
	}
	equal(t, "cursors that the server saw", strings.Count(strings.Join(a.seen(), "\n"),
		`"cursor":"again"`), 2)

	w.options.Limits.ListItems, w.options.Limits.ListPages = 100, 2
	if err := w.proxy.Apply(w.options); err != nil {
		t.Fatal(err)
	}
	params = `{"uri":"a+skill://x"}`
	page()
	equal(t, "more pages than allowed", page(), `!-32603 server "a" is not available: the `+
		`directory has more than 2 pages ([limits] list_pages)`)
	w.options.Limits.ListItems = 1
	if err := w.proxy.Apply(w.options); err != nil {
		t.Fatal(err)
	}
	params = `{"uri":"a+skill://x"}`
	equal(t, "more items than allowed in a page", page(), `!-31000 refused: the directory has `+
		`more than 1 items in one page ([limits] list_items)`)
}

func TestServerWithoutDirectoryReadIsNotAsked(t *testing.T) {
	b := serverAnswering(`{"capabilities":{"extensions":{"io.modelcontextprotocol/skills":{}}}}`)
	w := open(t, map[string]*fakeServer{"a": skillServer(nil), "b": b}, nil)
	w.call(t, "initialize", initializeParams)
	equal(t, "a directory of server b",
		w.call(t, "resources/directory/read", `{"uri":"b+skill://x"}`),
		`!-32601 server "b" has no directoryRead of io.modelcontextprotocol/skills`)
	equal(t, "messages that server b saw", len(b.seen()), 1)
}

func TestSkillsAreRefusedWhenTableIsFull(t *testing.T) {
	many := make([]string, 200)
	for i := range many {
		files := make([]string, 300)
		for j := range files {
			files[j] = fmt.Sprintf(`{"uri":"skill://s%d/%d"}`, i, j)
		}
		many[i] = skill(fmt.Sprintf("skill://s%d", i), "x", files...)
	}
	w := open(t, map[string]*fakeServer{"a": skillServer(nil, many...),
		"b": skillServer(nil, skill("skill://x", "x"))}, nil)
	w.call(t, "initialize", initializeParams)
	got := w.call(t, "skills/list", `{}`)
	if !strings.HasPrefix(got, `{"skills":[{"uri":"b+skill://x/SKILL.md"`) || strings.Count(got,
		`"frontmatter"`) != 1 || !strings.Contains(got, "more files than Gatekit can check") {
		t.Errorf("skills/list returned %.300s, want the skill of server b, and the reason why "+
			"the skills of server a are missing", got)
	}
}

// The new entry of a skill needs room only for the files that the earlier entry did not have.
func TestLargeSkillIsShownAgain(t *testing.T) {
	files := make([]string, 45_000)
	for i := range files {
		files[i] = fmt.Sprintf(`{"uri":"skill://big/%d"}`, i)
	}
	big, small := skill("skill://big", "x", files[:30_000]...), skill("skill://big", "x")
	grown := skill("skill://big", "x", files...)
	other := skill("skill://other", "x", files[:30_000]...)
	entry := ""
	a := skillServer(nil)
	answer := a.answer
	a.answer = func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
		if m.Method == "skills/get" {
			return `{"skill":` + entry + `}`
		}
		return answer(ctx, m, h)
	}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	w.call(t, "initialize", initializeParams)
	for _, step := range []struct {
		name, entry, uri string
		refused          bool
	}{
		{"the first time", big, "skill://big", false},
		{"the second time", big, "skill://big", false},
		{"another skill for which there is no room", other, "skill://other", true},
		{"with more files", grown, "skill://big", false},
		{"with fewer files", small, "skill://big", false},
		{"another skill for which there is room", other, "skill://other", false},
		{"with more files than there is room for", big, "skill://big", true},
	} {
		entry = step.entry
		got := w.call(t, "skills/get", `{"uri":"a+`+step.uri+`/SKILL.md"}`)
		if strings.HasPrefix(got, "!") != step.refused {
			t.Errorf("%s: skills/get returned %.200s, want an error: %v", step.name, got,
				step.refused)
		}
	}
}

// A skill that a stage hides stays hidden when there is no room for its entry. That holds for a
// skill that was hidden before, and for a skill that is hidden for the first time.
func TestHiddenSkillStaysHiddenWhenTableIsFull(t *testing.T) {
	const uri = "skill://evil/SKILL.md"
	files := make([]string, 50_000)
	for i := range files {
		files[i] = fmt.Sprintf(`{"uri":"skill://full/%d"}`, i)
	}
	// with its entry and its SKILL.md, this skill leaves room for two of 50,000 items
	full := skill("skill://full", "x", files[:49_996]...)
	overfull := skill("skill://over", "x", files...)
	for _, c := range []struct {
		name    string
		calls   []string // "list", or "get" and a URI
		read    string
		refused bool
	}{
		{"a file of a skill that was hidden before the table was full", []string{"get " + uri,
			"get skill://full/SKILL.md", "list"}, "skill://evil/run.sh", true},
		{"a file of a skill that was hidden when the table was full", []string{
			"get skill://full/SKILL.md", "get skill://two/SKILL.md", "get " + uri},
			"skill://evil/run.sh", true},
		{"a file of no skill, after a skill was hidden when the table was full", []string{
			"get skill://full/SKILL.md", "get skill://two/SKILL.md", "get " + uri},
			"file:///etc/x", true},
		{"a file of a known skill, after a skill was hidden when the table was full", []string{
			"get skill://full/SKILL.md", "get skill://two/SKILL.md", "get " + uri},
			"skill://two/unlisted", true},
		{"any file, after a skill whose URI is too long was hidden",
			[]string{"get skill://evil/" + strings.Repeat("x", 3000)}, "skill://evil/run.sh", true},
		{"a file when the table is full and no skill is hidden", []string{
			"get skill://full/SKILL.md", "get skill://over/SKILL.md"},
			"skill://evil/run.sh", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			deny := pipeline.StageConfig{Name: "denies", Stage: stage(
				func(m *mcp.Message) pipeline.Verdict {
					if m.Method == "skills/get" && m.Kind == mcp.Response &&
						strings.HasPrefix(m.Name, "skill://evil/") {
						return pipeline.Verdict{Action: pipeline.Deny}
					}
					return pipeline.Verdict{Action: pipeline.Allow}
				})}
			long := skill("skill://long", "x")
			long = strings.ReplaceAll(long, "skill://long/SKILL.md",
				"skill://evil/"+strings.Repeat("x", 3000))
			w := open(t, map[string]*fakeServer{"a": skillServer(nil, skill("skill://evil",
				"x", files[:10]...), full, overfull, long, skill("skill://two", "x"))}, nil, deny)
			w.call(t, "initialize", initializeParams)
			for _, call := range c.calls {
				if uri, ok := strings.CutPrefix(call, "get "); ok {
					w.call(t, "skills/get", `{"uri":"a+`+uri+`"}`)
				} else if got := w.call(t, "skills/list", `{}`); !strings.Contains(got,
					"more files than Gatekit can check") {
					t.Fatalf("skills/list returned %.200s, want the error that there are too many "+
						"files", got)
				}
			}
			got := w.call(t, "resources/read", `{"uri":"a+`+c.read+`"}`)
			if refused := strings.Contains(got, "the skill is hidden"); refused != c.refused {
				t.Errorf("resources/read of %s returned %.200s, want a refusal: %v", c.read, got,
					c.refused)
			}
		})
	}
}
