package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
)

// A stage may judge the use of an item by what it has seen in the list of such items: the
// definition of a tool, or that the tool is hidden. If there are several replicas, the client may
// have got the list from another one. Then this replica asks the server for the list itself, before
// the first use (Options.ListFirst). The list passes the stages, and no client gets it. The session
// itself needs the list of skills, for their digests and to know which of them are hidden.

// listsKeptFor is how long a list counts as seen in a session that other replicas serve, too: its
// client may meanwhile have got another list there.
const listsKeptFor = time.Minute

// seenLists are the lists of a server that the stages have seen completely in a session.
type seenLists struct {
	at     map[string]time.Time // when the list was seen, by its method; guarded by the server's mu
	asking chan struct{}        // of capacity 1: full while the server is asked for a list
}

// listsOf returns the methods of the lists with the items that the request uses.
func listsOf(m *mcp.Message) []string {
	switch m.Method {
	case "tools/call":
		return []string{"tools/list"}
	case "prompts/get":
		return []string{"prompts/list"}
	case "resources/read", "resources/subscribe", "resources/directory/read":
		return []string{"resources/list", "resources/templates/list", "skills/list"}
	case "skills/get":
		return []string{"skills/list"}
	case "completion/complete":
		if kind, _ := m.Text("/ref/type"); kind == "ref/prompt" {
			return []string{"prompts/list"}
		}
		return []string{"resources/list", "resources/templates/list"}
	case "subscriptions/listen":
		if m.Len("/notifications/resourceSubscriptions") > 0 {
			return []string{"resources/list"}
		}
	}
	if strings.HasPrefix(m.Method, "tasks/") && m.Name != "" { // of the task's tool
		return []string{"tools/list"}
	}
	return nil
}

// listFirst asks the server for the lists that the stages need to judge the request m, unless they
// have seen these lists in this session.
func (call *Call) listFirst(ctx context.Context, srv *sessionServer, m *mcp.Message) error {
	if !call.settings.ListFirst {
		return nil
	}
	for _, method := range listsOf(m) {
		meth, _ := mcp.LookupMethod(method)
		if srv.hasSeen(method) || srv.lacksMethod(meth) ||
			method != "skills/list" && !call.settings.Pipeline.NeedsList(m, method) {
			continue
		}
		if err := call.showList(ctx, srv, meth); err != nil {
			return err
		}
	}
	return nil
}

// showList asks the server for a list, so that the stages see it. If the list fails, or a stage
// denies it, showList returns the error: what the stages would have seen is not known. A server
// may have no such list.
func (call *Call) showList(ctx context.Context, srv *sessionServer, meth mcp.Method) error {
	select {
	case srv.seen.asking <- struct{}{}:
		defer func() { <-srv.seen.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if srv.hasSeen(meth.Name) { // another call was faster
		return nil
	}
	if err := call.fetchUnseen(ctx, srv, meth); err != nil && !errors.Is(err, errUnsupported) {
		return err
	}
	srv.noteSeen(meth.Name)
	return nil
}

// fetchUnseen asks the server for all pages of a list.
func (call *Call) fetchUnseen(ctx context.Context, srv *sessionServer, meth mcp.Method) error {
	params := []byte("{}")
	if meta, ok := call.request.Get("/_meta"); ok {
		params = object(field("_meta", meta))
	}
	first, err := mcp.NewRequest(call.request.ID(), meth.Name, params).Edit(
		mcp.Remove("/_meta/progressToken"))
	if err != nil {
		return err
	}
	first = call.session.stamp(first, mcp.ToServer, call.request)
	first.Server = srv.name
	list := &Call{session: call.session, settings: call.settings, client: call.client,
		request: first}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, _ := call.settings.timeouts(srv.name)
	d := list.startDeadline(srv, min(idle, listWait), listWait, cancel)
	defer d.stop()
	page, items := first, 0
	for range call.settings.Limits.ListPages {
		answer, err := list.callOneOfSeveral(ctx, srv, page, d)
		if err != nil {
			return err
		}
		p := serverPart{server: srv.name}
		if err := p.add(answer); err != nil {
			if meth.Name == "skills/list" && !srv.hasSkills() {
				return errUnsupported // the server has not declared skills, as far as is known
			}
			return err
		}
		if _, err := call.session.addPrefixes(call.settings, answer); err != nil { // owners of URIs
			return err
		}
		m := answer.Message()
		if items += m.Len(meth.ItemsPointer); items > call.settings.Limits.ListItems {
			return srv.unavailable(fmt.Sprintf("its list has more than %d items "+
				"([limits] list_items)", call.settings.Limits.ListItems))
		}
		next, more := m.Get("/nextCursor")
		if !more || string(next) == "null" {
			return nil
		}
		if page, err = first.Edit(mcp.Set("/cursor", next)); err != nil {
			return err
		}
	}
	return srv.unavailable(fmt.Sprintf("its list has more than %d pages ([limits] list_pages)",
		call.settings.Limits.ListPages))
}

// hasSeen reports whether the stages have seen the list in this session.
func (srv *sessionServer) hasSeen(list string) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	at, ok := srv.seen.at[list]
	return ok && (!srv.session.options.Shared || time.Since(at) < listsKeptFor)
}

// noteSeen notes that the stages have seen all pages of the list.
func (srv *sessionServer) noteSeen(list string) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.seen.at == nil {
		srv.seen.at = map[string]time.Time{}
	}
	srv.seen.at[list] = time.Now()
}

// noteListChanged notes that a list has changed, if that is what the server's notification m means.
func (srv *sessionServer) noteListChanged(m *mcp.Message) {
	feature, ok := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if !ok || !slices.Contains(listFeatures, feature) {
		return
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.seen.at, feature+"/list")
	if feature == "resources" {
		delete(srv.seen.at, "resources/templates/list")
		delete(srv.seen.at, "skills/list")
	}
}
