package mcptest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Tools of a Toolbox, by name. All their arguments are optional.
const (
	// Echo returns the received params as text. Its structured content has the argument tag and the
	// server's name.
	Echo = "echo"
	// Raw writes the texts in the argument lines, and no other answer. In these texts it replaces
	// $ID by the request's id, $TOKEN by the progress token, and $PAD by n bytes.
	Raw    = "raw"
	Result = "result" // returns the argument result, a string of JSON, unchanged
	// Ask sends a request to the client and returns the answer. The arguments method and params are
	// those of the request.
	Ask      = "ask"
	Progress = "progress" // reports progress n times, but at least 3 times
	Log      = "log"      // logs n messages, but at least 1
	// Wait reports progress once, if the call has a progress token. It waits until the call is
	// cancelled, and answers only then, which is too late.
	Wait      = "wait"
	Cancelled = "cancelled" // returns when a call of Wait with the same argument tag was cancelled
	Change    = "change"    // adds a tool and sends list_changed for all lists
	// Scenario logs if logging is on, reports progress, makes the changes of Change, sends every
	// kind of reverse request, and returns the answers.
	Scenario = "scenario"
	Update   = "update" // sends resources/updated for the argument uri
	Die      = "die"    // ends the server without an answer
	Self     = "self"   // returns the server's pid, working folder and environment
	// Odd works like Echo. Its name has characters that tool names should not have.
	Odd = "odd name/ü."
)

// Toolbox returns a server with all tools above, paged lists, prompts, resources, templates and
// completion.
func Toolbox(name string, revisions ...string) *Server {
	box := &toolbox{name: name, cancelled: map[string]chan struct{}{},
		tools: []string{Echo, Raw, Result, Ask, Progress, Log, Wait, Cancelled, Change, Scenario,
			Update, Die, Self, Odd}}
	s := &Server{
		Name:         name,
		Revisions:    revisions,
		Capabilities: `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"experimental":{"acme/x":{"n":1.0}}}`,
		Instructions: "Use " + name + " gently.",
	}
	s.Handle = map[string]func(*Call){
		"tools/list":     box.listTools,
		"tools/call":     box.call,
		"prompts/list":   page("prompts", func() []string { return box.prompts() }),
		"prompts/get":    box.prompt,
		"resources/list": page("resources", func() []string { return box.resources() }),
		"resources/templates/list": page("resourceTemplates", func() []string {
			return box.templates()
		}),
		"resources/read":        box.read,
		"resources/subscribe":   func(c *Call) { c.Result(`{}`) },
		"resources/unsubscribe": func(c *Call) { c.Result(`{}`) },
		"logging/setLevel":      setLevel,
		"completion/complete":   box.complete,
		"acme/vendor": func(c *Call) {
			c.Result(fmt.Sprintf(`{"server":%s,"params":%s}`,
				Quote(box.name), c.Params))
		},
	}
	return s
}

type toolbox struct {
	name string

	mu        sync.Mutex // guards the fields below
	tools     []string
	cancelled map[string]chan struct{} // by tag; closed when a call of Wait was cancelled
}

// page returns a handler that lists items, two per page.
func page(what string, items func() []string) func(*Call) {
	return func(c *Call) {
		all, at := items(), 0
		if cur := At(c.Params, "cursor"); cur != nil {
			var err error
			if at, err = strconv.Atoi(strings.TrimPrefix(Text(c.Params, "cursor"),
				"page-")); err != nil || at >= len(all) {
				c.Error(-32602, "invalid cursor", "")
				return
			}
		}
		end, next := min(at+2, len(all)), ""
		if end < len(all) {
			next = fmt.Sprintf(`,"nextCursor":"page-%d"`, end)
		}
		hints := ""
		if c.version != "" {
			hints = `,"ttlMs":0,"cacheScope":"private"`
		}
		c.Result(fmt.Sprintf(`{%s:[%s]%s%s}`, Quote(what), strings.Join(all[at:end], ","), next,
			hints))
	}
}

func (b *toolbox) listTools(c *Call) {
	b.mu.Lock()
	names := slices.Clone(b.tools)
	b.mu.Unlock()
	page("tools", func() (items []string) {
		for _, n := range names {
			items = append(items, fmt.Sprintf(
				`{"name":%s,"inputSchema":{"type":"object","x-big":12345678901234567890,"x-frac":1.50},"description":"<&> \u00e9 of %s","annotations":{}}`, Quote(n), b.name))
		}
		return items
	})(c)
}

func (b *toolbox) prompts() []string {
	return []string{
		`{"name":"greet","arguments":[{"name":"who","required":true}]}`,
		`{"name":"plain"}`,
		`{"name":"linked","title":"with a link"}`,
	}
}

func (b *toolbox) resources() []string {
	return []string{
		`{"uri":"test://` + b.name + `/a","name":"a"}`,
		`{"uri":"file:///data/b%20c.txt","name":"b","size":1000,"x-odd":1e3}`,
		`{"uri":"ui://panel/x","name":"panel","mimeType":"text/html;profile=mcp-app"}`,
	}
}

func (b *toolbox) templates() []string {
	return []string{
		`{"uriTemplate":"test://` + b.name + `/{id}","name":"by id"}`,
		`{"uriTemplate":"{+scheme}://x","name":"expression first"}`,
	}
}

func setLevel(c *Call) {
	level := Text(c.Params, "level")
	if !slices.Contains([]string{"debug", "info", "notice", "warning", "error", "critical", "alert",
		"emergency"}, level) {
		c.Error(-32602, "unknown log level: "+level, "")
		return
	}
	c.Result(`{}`)
}

func (b *toolbox) prompt(c *Call) {
	switch name := Text(c.Params, "name"); name {
	case "greet":
		c.Result(fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`,
			Quote("Hello "+Text(c.Params, "arguments", "who"))))
	case "plain":
		c.Result(`{"description":"","messages":[]}`)
	case "linked":
		c.Result(`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"test://` + b.name + `/a","text":""}}},{"role":"assistant","content":{"type":"resource_link","uri":"ui://panel/x","name":"p"}}]}`)
	default:
		c.Error(-32602, "unknown prompt: "+name, "")
	}
}

func (b *toolbox) read(c *Call) {
	uri := Text(c.Params, "uri")
	if !strings.HasPrefix(uri, "test://"+b.name+"/") && !strings.HasPrefix(uri, "file:///data/") &&
		!strings.HasPrefix(uri, "ui://panel/") {
		c.Error(-32002, "resource not found", fmt.Sprintf(`{"uri":%s}`, Quote(uri)))
		return
	}
	hints := ""
	if c.version != "" {
		hints = `,"ttlMs":0,"cacheScope":"private"`
	}
	c.Result(fmt.Sprintf(`{"contents":[{"uri":%s,"text":%s}]%s}`, Quote(uri),
		Quote(uri+" of "+b.name), hints))
}

func (b *toolbox) complete(c *Call) {
	what := Text(c.Params, "ref", "name") + Text(c.Params, "ref", "uri")
	c.Result(fmt.Sprintf(`{"completion":{"values":[%s,%s],"hasMore":false}}`, Quote(b.name),
		Quote(what)))
}

// cancellation returns the channel that is closed when a call of Wait with this tag was cancelled.
func (b *toolbox) cancellation(tag string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancelled[tag] == nil {
		b.cancelled[tag] = make(chan struct{})
	}
	return b.cancelled[tag]
}

// release ends all calls of Cancelled with this tag. Later calls with the tag end at once.
func (b *toolbox) release(tag string) {
	ch := b.cancellation(tag)
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (b *toolbox) call(c *Call) {
	arg := At(c.Params, "arguments")
	n := 0
	json.Unmarshal(At(arg, "n"), &n)
	done := func() { c.Result(`{"content":[{"type":"text","text":"done"}]}`) }
	b.mu.Lock()
	known := slices.Contains(b.tools, Text(c.Params, "name"))
	b.mu.Unlock()
	switch name := Text(c.Params, "name"); name {
	case Raw:
		var lines []string
		json.Unmarshal(At(arg, "lines"), &lines)
		for _, l := range lines {
			c.Raw(strings.NewReplacer("$ID", string(c.ID), "$TOKEN", string(c.Token()),
				"$PAD", strings.Repeat("x", n)).Replace(l))
		}
	case Result:
		c.Result(Text(arg, "result"))
	case Ask:
		result, fault := c.Ask("q", Text(arg, "method"), string(At(arg, "params")))
		c.Result(fmt.Sprintf(`{"content":[],"structuredContent":{"result":%s,"error":%s}}`,
			orNull(result), orNull(fault)))
	case Progress:
		for i := range max(n, 3) {
			c.Notify("notifications/progress",
				fmt.Sprintf(`{"progressToken":%s,"progress":%d.0,"total":%d,"message":"of %s"}`,
					c.Token(), i, max(n, 3), b.name))
		}
		done()
	case Log:
		for i := range max(n, 1) {
			c.Notify("notifications/message",
				fmt.Sprintf(`{"level":"warning","logger":"box","data":{"n":%d,"of":%s,"pad":%s}}`,
					i, Quote(b.name), Quote(Text(arg, "pad"))))
		}
		done()
	case Wait:
		if t := c.Token(); t != nil {
			c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":0}`, t))
		}
		<-c.Done()
		b.release(Text(arg, "tag"))
		done()
	case Cancelled:
		select {
		case <-b.cancellation(Text(arg, "tag")):
			done()
		case <-c.Done():
		}
	case Change:
		b.change(c)
		done()
	case Scenario:
		b.scenario(c)
	case Update:
		c.Feed("notifications/resources/updated", fmt.Sprintf(`{"uri":%s}`,
			Quote(Text(arg, "uri"))))
		done()
	case Die:
		c.Die()
	case Self:
		dir, _ := os.Getwd()
		c.Result(fmt.Sprintf(`{"content":[],"structuredContent":{"pid":%d,"dir":%s,"env":%s}}`,
			os.Getpid(), Quote(dir), list(os.Environ())))
	default: // Echo, Odd and the tools that Change added
		if !known {
			c.Error(-32602, "unknown tool: "+name, "")
			return
		}
		c.Result(fmt.Sprintf(
			`{"content":[{"type":"text","text":%s}],"structuredContent":{"server":%s,"tag":%s}}`,
			Quote(string(c.Params)), Quote(b.name), orNull(At(arg, "tag"))))
	}
}

func (b *toolbox) change(c *Call) {
	b.mu.Lock()
	b.tools = append(b.tools, fmt.Sprintf("added-%d", len(b.tools)))
	b.mu.Unlock()
	for _, what := range []string{"tools", "prompts", "resources"} {
		c.Feed("notifications/"+what+"/list_changed", `{}`)
	}
}

func (b *toolbox) scenario(c *Call) {
	progress := func(n int) {
		if t := c.Token(); t != nil {
			c.Notify("notifications/progress",
				fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":2}`, t, n))
		}
	}
	id := `"elicitationId":"e",` // only in legacy revisions
	if c.version != "" {
		id = ""
	}
	// a modern call runs again for each Ask: make changes only once
	if At(c.Params, "requestState") == nil {
		if c.version == "" || At(c.Params, "_meta", metaLogLevel) != nil {
			c.Notify("notifications/message",
				`{"level":"warning","logger":"scenario","data":"on the way"}`)
		}
		progress(1)
		b.change(c)
	}
	var answers []string
	for _, q := range []struct{ key, method, params string }{
		{"sampling", "sampling/createMessage",
			`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":9}`},
		{"form", "elicitation/create",
			`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`},
		{"roots", "roots/list", `{}`},
		{"url", "elicitation/create", `{"mode":"url",` + id +
			`"message":"go there","url":"https://example.com/sign?in=1"}`},
	} {
		result, fault := c.Ask(q.key, q.method, q.params)
		if fault != nil {
			result = fault
		}
		answers = append(answers, Quote(q.key)+":"+string(result))
	}
	progress(2)
	c.Result(fmt.Sprintf(`{"content":[],"structuredContent":{%s}}`, strings.Join(answers, ",")))
}

func orNull(v json.RawMessage) string {
	if v == nil {
		return "null"
	}
	return string(v)
}
