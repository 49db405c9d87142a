package tools

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

//go:embed schema.json
var schema []byte

// Plugin is the plugin, for the list of built-ins.
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "tools",
		Version: "1.0.0",
		Doc:     "hides, renames and redescribes tools, prompts and resources",
		Wants:   wants(named, uris),
		Needs:   sdk.Needs{Body: true},
		Schema:  schema,
		New: func(config []byte) (sdk.Stage, error) {
			s, err := newStage(config)
			if err != nil {
				return nil, err // and no *stage that is nil
			}
			return s, nil
		},
		SelfTest: canary,
	}
}

// What is said of names, and of URIs.
var (
	named = []string{"tools/list", "tools/call", "prompts/list", "prompts/get",
		"completion/complete"}
	uris = []string{"resources/*", "completion/complete", "subscriptions/listen",
		"notifications/resources/updated", subscribed}
)

const subscribed = "notifications/subscriptions/acknowledged"

// wants is the lists as they are answered, and the uses as they are asked for.
func wants(methods ...[]string) pipeline.Wants {
	return pipeline.Wants{
		Methods: slices.Concat(methods...),
		Kinds:   []mcp.Kind{mcp.Request, mcp.Response, mcp.Notification},
		OnlyKind: map[string]mcp.Kind{
			"tools/list": mcp.Response, "prompts/list": mcp.Response,
			"resources/list": mcp.Response, "resources/templates/list": mcp.Response,
			"tools/call": mcp.Request, "prompts/get": mcp.Request,
			"completion/complete": mcp.Request, "subscriptions/listen": mcp.Request,
			"resources/read": mcp.Request, "resources/subscribe": mcp.Request,
			"resources/unsubscribe": mcp.Request,
		},
	}
}

// stage holds what the configuration says of each kind.
type stage struct {
	tools, prompts, resources filter
	renames                   pipeline.Renames
}

// Wants implements sdk.StageWithWants: only the kinds of items that the configuration speaks of,
// and only their lists when none is hidden.
func (s *stage) Wants() pipeline.Wants {
	var methods []string
	add := func(f *filter, lists, uses []string) {
		if f.given {
			methods = append(methods, lists...)
		}
		if f.filters() {
			methods = append(methods, uses...)
		}
	}
	add(&s.tools, []string{"tools/list"}, []string{"tools/call"})
	add(&s.prompts, []string{"prompts/list"}, []string{"prompts/get", "completion/complete"})
	add(&s.resources, []string{"resources/list", "resources/templates/list"}, uris)
	return wants(methods)
}

// Inspect implements sdk.Stage.
func (s *stage) Inspect(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if m.Kind == mcp.Response {
		switch m.Method {
		case "tools/list":
			return s.tools.list(m), nil
		case "prompts/list":
			return s.prompts.list(m), nil
		case "resources/list", "resources/templates/list":
			return s.resources.list(m), nil
		}
		return sdk.Allow(), nil
	}
	switch m.Method {
	case "tools/call":
		return s.tools.use(m, "/name"), nil
	case "prompts/get":
		return s.prompts.use(m, "/name"), nil
	case "resources/read", "resources/subscribe", "resources/unsubscribe",
		"notifications/resources/updated":
		return s.resources.use(m, "/uri"), nil
	case "completion/complete":
		return s.complete(m), nil
	case "subscriptions/listen", subscribed:
		return s.resources.subscribe(m), nil
	}
	return sdk.Allow(), nil
}

// use judges a message about one item, whose name is at pointer. That is not said of the finding:
// the name holds nothing that may not be kept, and is of interest.
func (f *filter) use(m *mcp.Message, pointer string) sdk.Verdict {
	if !f.filters() {
		return sdk.Allow()
	}
	name, ok := m.Text(pointer)
	switch {
	case !ok: // it cannot be said what the server would take it for
		return sdk.Deny("it does not say what it is about", pipeline.Finding{Type: "no-name",
			Pointer: pointer})
	case f.hidden(name), m.Name != "" && f.hidden(m.Name):
		return sdk.Deny("it is about what clients may not know", pipeline.Finding{Type: "hidden"})
	}
	return sdk.Allow()
}

// complete judges a completion by all that its reference names, whatever kind it says it is of.
func (s *stage) complete(m *mcp.Message) sdk.Verdict {
	for _, x := range []struct {
		f    *filter
		at   string
		kind string
	}{{&s.prompts, "/ref/name", "ref/prompt"}, {&s.resources, "/ref/uri", "ref/resource"}} {
		name, ok := m.Text(x.at)
		if !x.f.filters() || !ok && !m.TextEquals("/ref/type", x.kind) {
			continue
		}
		if !ok || x.f.hidden(name) {
			return sdk.Deny("it is about what clients may not know",
				pipeline.Finding{Type: "hidden"})
		}
	}
	return sdk.Allow()
}

// subscribe takes the hidden resources out of a subscription.
func (f *filter) subscribe(m *mcp.Message) sdk.Verdict {
	v := sdk.Allow()
	if !f.filters() {
		return v
	}
	m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
		if uri, ok := mcp.NewNotification("", raw).Text(""); ok && f.hidden(uri) {
			v.Hide = append(v.Hide, uri)
		}
		return true
	})
	if len(v.Hide) > 0 {
		v.Reason = fmt.Sprintf("hides %d resources", len(v.Hide))
	}
	return v
}

// list takes what is hidden out of a list, and changes what is to be changed.
func (f *filter) list(m *mcp.Message) sdk.Verdict {
	method, _ := mcp.LookupMethod(m.Method)
	var v sdk.Verdict
	hidden, changed, items := 0, 0, 0
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		items++
		item, at := mcp.NewNotification("", raw), method.ItemsPointer+"/"+strconv.Itoa(i)
		name, _ := item.Text(method.ItemNamePointer)
		switch {
		case name == "" && f.filters(): // nobody can say what it is
			hidden++
			v.Edits = append(v.Edits, mcp.Remove(at))
		case name != "" && f.hidden(name):
			hidden++
			v.Hide = append(v.Hide, name)
		case name != "":
			if c, ok := f.changes[name]; ok {
				edits := f.edits(c, item, at)
				v.Edits = append(v.Edits, edits...)
				changed += min(len(edits), 1)
			}
		}
		return true
	})
	v.Action = pipeline.Allow
	if len(v.Edits) > 0 {
		v.Action = pipeline.Modify
	}
	if hidden+changed > 0 {
		v.Reason = fmt.Sprintf("of %d items, hides %d and changes %d", items, hidden, changed)
	}
	return v
}

// edits is what c makes of an item. Older clients read a tool's title among its annotations.
func (f *filter) edits(c change, item *mcp.Message, at string) (edits []mcp.Edit) {
	set := func(pointer string, text *string) {
		if text != nil && !item.TextEquals(pointer, *text) {
			edits = append(edits, mcp.Set(at+pointer, mcp.Quote(*text)))
		}
	}
	set("/title", c.Title)
	if _, ok := item.Get("/annotations/title"); ok {
		set("/annotations/title", c.Title)
	}
	set("/description", c.Description)
	if f.uris {
		set("/name", c.Rename) // of what is known by its URI
	}
	return edits
}

// canary is a call of something that the configuration hides, or a list with something that it
// changes.
func canary(config []byte) *sdk.SelfTest {
	s, err := newStage(config)
	if err != nil {
		return nil
	}
	for _, x := range []struct {
		f                   *filter
		method, list, title string
	}{
		{&s.tools, "tools/call", "tools/list", "tool"},
		{&s.prompts, "prompts/get", "prompts/list", "prompt"},
		{&s.resources, "resources/read", "resources/list", "resource"},
	} {
		if name, ok := x.f.unseen(); ok {
			method, _ := mcp.LookupMethod(x.method)
			m := mcp.NewRequest("1", x.method,
				[]byte(`{"`+method.NamePointer[1:]+`":`+string(mcp.Quote(name))+`}`))
			m.Direction, m.Server, m.Name = mcp.ToServer, "canary", name
			return &sdk.SelfTest{Description: "the use of a hidden " + x.title, Message: m,
				Action: pipeline.Deny}
		}
		for _, name := range slices.Sorted(maps.Keys(x.f.changes)) {
			c := x.f.changes[name]
			list, _ := mcp.LookupMethod(x.list)
			item := `{"` + list.ItemNamePointer[1:] + `":` + string(mcp.Quote(name)) + `}`
			m := mcp.NewResponse("1", []byte(`{"`+list.ItemsPointer[1:]+`":[`+item+`]}`))
			m.Direction, m.Server, m.Method = mcp.ToClient, "canary", x.list
			if len(x.f.edits(c, mcp.NewNotification("", []byte(item)), "")) > 0 {
				return &sdk.SelfTest{Description: "a changed " + x.title + " in a list", Message: m,
					Action: pipeline.Modify}
			}
		}
	}
	return nil // names only, which the pipeline gives
}

// unseen is a name that is hidden.
func (f *filter) unseen() (string, bool) {
	for _, p := range f.hide {
		if name := strings.Join(p.parts, "x"); f.hidden(name) {
			return name, true
		}
	}
	return "gatekit-canary", f.hidden("gatekit-canary")
}
