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

// Plugin returns the plugin tools.
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "tools",
		Version: "1.0.0",
		Doc:     "hides and renames tools, prompts and resources, and replaces their descriptions",
		Wants:   wants(nameMethods, uriMethods),
		Needs:   sdk.Needs{Body: true},
		Schema:  schema,
		New: func(config []byte) (sdk.Stage, error) {
			s, err := newStage(config)
			if err != nil {
				return nil, err // not s: a nil *stage would be a non-nil sdk.Stage
			}
			return s, nil
		},
		SelfTest: selfTest,
	}
}

// nameMethods are the methods that name a tool or a prompt. uriMethods are the methods that have
// the URI of a resource.
var (
	nameMethods = []string{"tools/list", "tools/call", "prompts/list", "prompts/get",
		"completion/complete"}
	uriMethods = []string{"resources/*", "skills/*", "completion/complete", "subscriptions/listen",
		"notifications/resources/updated", subscribed}
)

// subscribed is the notification by which a server confirms a subscription.
const subscribed = "notifications/subscriptions/acknowledged"

// wants selects the messages that have one of the methods. For most methods, the stage needs only
// the response (methods that list items) or only the request (other methods).
func wants(methods ...[]string) pipeline.Wants {
	return pipeline.Wants{
		Methods: slices.Concat(methods...),
		Kinds:   []mcp.Kind{mcp.Request, mcp.Response, mcp.Notification},
		OnlyKind: map[string]mcp.Kind{
			"tools/list": mcp.Response, "prompts/list": mcp.Response,
			"resources/list": mcp.Response, "resources/templates/list": mcp.Response,
			"skills/list": mcp.Response, "skills/get": mcp.Request,
			"tools/call": mcp.Request, "prompts/get": mcp.Request,
			"completion/complete": mcp.Request, "subscriptions/listen": mcp.Request,
			"resources/read": mcp.Request, "resources/subscribe": mcp.Request,
			"resources/unsubscribe": mcp.Request,
		},
	}
}

// stage has a filter for each kind of item.
type stage struct {
	tools, prompts, resources filter
	renames                   pipeline.Renames
}

// Wants implements sdk.StageWithWants. It selects only messages about the kinds of items that the
// configuration names. If no item of a kind can be hidden, it selects only the lists of that kind.
func (s *stage) Wants() pipeline.Wants {
	var methods []string
	add := func(f *filter, lists, uses []string) {
		if f.configured {
			methods = append(methods, lists...)
		}
		if f.hidesAny() {
			methods = append(methods, uses...)
		}
	}
	add(&s.tools, []string{"tools/list"}, []string{"tools/call"})
	add(&s.prompts, []string{"prompts/list"}, []string{"prompts/get", "completion/complete"})
	add(&s.resources, []string{"resources/list", "resources/templates/list",
		"skills/list"}, uriMethods)
	return wants(methods)
}

// Reuse implements sdk.StageWithReuse.
func (s *stage) Reuse() *sdk.Reuse { return &sdk.Reuse{} }

// Inspect implements sdk.Stage.
func (s *stage) Inspect(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if m.Kind == mcp.Response {
		switch m.Method {
		case "tools/list":
			return s.tools.filterList(m), nil
		case "prompts/list":
			return s.prompts.filterList(m), nil
		case "resources/list", "resources/templates/list", "resources/directory/read",
			"skills/list":
			return s.resources.filterList(m), nil
		}
		return sdk.Allow(), nil
	}
	switch m.Method {
	case "tools/call":
		return s.tools.checkUse(m, "/name"), nil
	case "prompts/get":
		return s.prompts.checkUse(m, "/name"), nil
	case "resources/read", "resources/subscribe", "resources/unsubscribe",
		"resources/directory/read", "skills/get", "notifications/resources/updated":
		return s.resources.checkUse(m, "/uri"), nil
	case "completion/complete":
		return s.checkCompletion(m), nil
	case "subscriptions/listen", subscribed:
		return s.resources.filterSubscription(m), nil
	}
	return sdk.Allow(), nil
}

// checkUse returns the verdict on a message about one item, whose name is at pointer. The finding
// of a hidden item has no pointer, because the audit log leaves out a name that a finding points
// to.
func (f *filter) checkUse(m *mcp.Message, pointer string) sdk.Verdict {
	if !f.hidesAny() {
		return sdk.Allow()
	}
	name, ok := m.Text(pointer)
	switch {
	case !ok: // the server might still find a name in the message
		return sdk.Deny("the message names no "+f.item, pipeline.Finding{Type: "no-name",
			Pointer: pointer})
	case f.hides(name), m.Name != "" && f.hides(m.Name):
		return f.denyHidden()
	}
	return sdk.Allow()
}

// denyHidden returns the denial of a message about a hidden item.
func (f *filter) denyHidden() sdk.Verdict {
	return sdk.Deny("the "+f.item+" is hidden from this client", pipeline.Finding{Type: "hidden"})
}

// checkCompletion returns the verdict on a request for completions. It checks the name and the URI
// of the reference, whatever the type of the reference.
func (s *stage) checkCompletion(m *mcp.Message) sdk.Verdict {
	for _, x := range []struct {
		filter  *filter
		pointer string
		refType string
	}{{&s.prompts, "/ref/name", "ref/prompt"}, {&s.resources, "/ref/uri", "ref/resource"}} {
		name, ok := m.Text(x.pointer)
		if !x.filter.hidesAny() || !ok && !m.TextEquals("/ref/type", x.refType) {
			continue
		}
		if !ok || x.filter.hides(name) {
			return x.filter.denyHidden()
		}
	}
	return sdk.Allow()
}

// filterSubscription returns the verdict that removes hidden resources from a subscription.
func (f *filter) filterSubscription(m *mcp.Message) sdk.Verdict {
	v := sdk.Allow()
	if !f.hidesAny() {
		return v
	}
	m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
		if uri, ok := mcp.NewNotification("", raw).Text(""); ok && f.hides(uri) {
			v.Hide = append(v.Hide, uri)
		}
		return true
	})
	if len(v.Hide) > 0 {
		v.Reason = fmt.Sprintf("%d resources hidden", len(v.Hide))
	}
	return v
}

// filterList hides the hidden items of a list, and changes the others as configured.
func (f *filter) filterList(m *mcp.Message) sdk.Verdict {
	method, _ := mcp.LookupMethod(m.Method)
	var v sdk.Verdict
	hidden, changed, items := 0, 0, 0
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		items++
		item := mcp.NewNotification("", raw)
		pointer := method.ItemsPointer + "/" + strconv.Itoa(i)
		name, _ := item.Text(method.ItemNamePointer)
		switch {
		case name == "" && f.hidesAny(): // the patterns cannot be applied
			hidden++
			v.Edits = append(v.Edits, mcp.Remove(pointer))
		case name != "" && f.hides(name):
			hidden++
			v.Hide = append(v.Hide, name)
		case name != "":
			if c, ok := f.changes[name]; ok {
				edits := f.itemEdits(c, item, pointer)
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
		v.Reason = fmt.Sprintf("%d of %d items hidden, %d changed", hidden, items, changed)
	}
	return v
}

// itemEdits returns the edits that a change makes to the item at base. Older clients read a tool's
// title from its annotations.
func (f *filter) itemEdits(c change, item *mcp.Message, base string) (edits []mcp.Edit) {
	set := func(pointer string, text *string) {
		if text != nil && !item.TextEquals(pointer, *text) {
			edits = append(edits, mcp.Set(base+pointer, mcp.Quote(*text)))
		}
	}
	set("/title", c.Title)
	if _, ok := item.Get("/annotations/title"); ok {
		set("/annotations/title", c.Title)
	}
	set("/description", c.Description)
	if f.isURI {
		set("/name", c.Rename) // for display only
	}
	return edits
}

// selfTest returns a request for an item that the configuration hides, or a list with an item that
// the configuration changes.
func selfTest(config []byte) *sdk.SelfTest {
	s, err := newStage(config)
	if err != nil {
		return nil
	}
	for _, x := range []struct {
		filter                *filter
		useMethod, listMethod string
	}{
		{&s.tools, "tools/call", "tools/list"},
		{&s.prompts, "prompts/get", "prompts/list"},
		{&s.resources, "resources/read", "resources/list"},
	} {
		if name, ok := x.filter.hiddenName(); ok {
			method, _ := mcp.LookupMethod(x.useMethod)
			m := mcp.NewRequest("1", x.useMethod,
				[]byte(`{"`+method.NamePointer[1:]+`":`+string(mcp.Quote(name))+`}`))
			m.Direction, m.Server, m.Name = mcp.ToServer, "canary", name
			return &sdk.SelfTest{Description: "the use of a hidden " + x.filter.item, Message: m,
				Action: pipeline.Deny}
		}
		for _, name := range slices.Sorted(maps.Keys(x.filter.changes)) {
			c := x.filter.changes[name]
			list, _ := mcp.LookupMethod(x.listMethod)
			item := `{"` + list.ItemNamePointer[1:] + `":` + string(mcp.Quote(name)) + `}`
			m := mcp.NewResponse("1", []byte(`{"`+list.ItemsPointer[1:]+`":[`+item+`]}`))
			m.Direction, m.Server, m.Method = mcp.ToClient, "canary", x.listMethod
			if len(x.filter.itemEdits(c, mcp.NewNotification("", []byte(item)), "")) > 0 {
				return &sdk.SelfTest{Description: "a changed " + x.filter.item + " in a list",
					Message: m, Action: pipeline.Modify}
			}
		}
	}
	return nil // only names are changed, and the pipeline does that
}

// hiddenName returns a name that the filter hides. ok is false if it finds no such name.
func (f *filter) hiddenName() (name string, ok bool) {
	for _, p := range f.hide {
		if name := strings.ReplaceAll(p.text, "*", "x"); f.hides(name) {
			return name, true
		}
	}
	return "gatekit-canary", f.hides("gatekit-canary")
}
