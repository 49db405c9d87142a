package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// listWait is how long one server may delay a list, with all of its pages.
const listWait = 20 * time.Second

// maxListBytes bounds the list of one server, and one merged list.
const maxListBytes = 64 << 20

// broadcast sends a request to all servers that support it and merges their answers.
func (call *Call) broadcast(ctx context.Context, meth mcp.Method) (pipeline.Passed, error) {
	var start cursor
	if raw, paged := call.request.Get("/cursor"); paged {
		token, _ := call.request.Text("/cursor")
		if call.session.proxy.seal.open(token, &start, "cursor", call.request.Principal,
			meth.Name) != nil {
			return pipeline.Passed{}, requestErrorf(mcp.CodeInvalidParams,
				"invalid cursor %.100s: ask again without one", raw)
		}
	}
	parts := call.askAll(ctx, meth)
	if ctx.Err() != nil {
		return pipeline.Passed{}, context.Cause(ctx)
	}
	if err := call.inspectUnsent(ctx); err != nil { // when no server supports the request
		return pipeline.Passed{}, err
	}
	switch {
	case meth.ItemsPointer != "":
		return call.listAnswer(ctx, meth, parts, start)
	case meth.Name == "server/discover":
		versions := make([][]byte, 0, 5)
		for _, r := range mcp.Revisions() {
			versions = append(versions, mcp.Quote(r))
		}
		return call.mergeParts(ctx, parts, func(good []*serverPart) ([]member, error) {
			members, err := call.mergeServerInfo(good)
			return append([]member{listField("supportedVersions", versions)}, members...), err
		})
	}
	// logging/setLevel: an empty result, unless a server finds the level invalid.
	for _, p := range parts {
		if m := p.refused.Message(); m != nil && m.ErrorCode() == mcp.CodeInvalidParams {
			return call.session.addPrefixes(call.settings, p.refused)
		}
	}
	return call.mergeParts(ctx, parts, func(good []*serverPart) ([]member, error) {
		return call.mergeOtherMembers([]*mcp.Message{good[0].answers[0].Message()}), nil
	})
}

// listAnswer merges the servers' parts into one list.
func (call *Call) listAnswer(ctx context.Context, meth mcp.Method, parts []serverPart,
	start cursor) (pipeline.Passed, error) {
	var pages []*clientPage
	for _, p := range parts {
		pages = append(pages, p.pages...)
	}
	cacheable := start.From == 0 && len(failedParts(parts)) == 0 && call.settings.sharesPages()
	if cacheable {
		if m := call.settings.pages.list(meth.Name, pages); m != nil {
			return call.settings.Pipeline.PassOwn(ctx,
				call.stampAnswer(m.WithID(call.request.ID()))), nil
		}
	}
	answer, err := call.mergeParts(ctx, parts, func(good []*serverPart) ([]member, error) {
		return call.mergeList(meth, good, start)
	})
	if m := answer.Message(); cacheable && err == nil && m != nil && m.Kind == mcp.Response {
		// a list with a cursor is for one principal only
		if _, more := m.Get("/nextCursor"); !more && len(failedParts(parts)) == 0 {
			call.settings.pages.storeList(meth.Name, pages, m)
		}
	}
	return answer, err
}

// askAll calls all servers at once.
func (call *Call) askAll(ctx context.Context, meth mcp.Method) []serverPart {
	servers := call.session.serversInOrder(call.settings)
	parts := make([]serverPart, len(servers))
	var wg sync.WaitGroup
	for i, srv := range servers {
		parts[i].server = srv.name
		if srv.lacksCapability(meth.Capability) {
			parts[i].err = errUnsupported
			continue
		}
		wg.Go(func() { parts[i].err = call.fetchPages(ctx, srv, meth, &parts[i]) })
	}
	wg.Wait()
	call.session.uriOwners.noteListed(meth.Name)
	return parts
}

// fetchPages calls one server, page by page. Pages before a failure are kept.
func (call *Call) fetchPages(ctx context.Context, srv *sessionServer, meth mcp.Method,
	p *serverPart) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, _ := call.timeouts(srv)
	d := call.startDeadline(srv, min(idle, listWait), listWait, cancel)
	defer d.stop()
	m := *call.request
	m.Server = srv.name
	// One token cannot report the progress of several servers, and the cursor is Gatekit's.
	first, err := m.Edit(mcp.Remove("/cursor"), mcp.Remove("/_meta/progressToken"))
	if err == nil {
		first, err = call.session.removePrefixes(call.settings, first)
	}
	if err != nil {
		return err
	}
	page, sentCursor, items, size := first, "", 0, 0
	for n := 1; ; n++ {
		answer, err := call.callOneOfSeveral(ctx, srv, page, d)
		if err != nil {
			return err
		}
		m := answer.Message()
		if err := p.add(answer); err != nil || meth.ItemsPointer == "" {
			return err
		}
		v, err := call.settings.pages.page(call, meth, answer, n)
		if err != nil {
			return err
		}
		p.pages = append(p.pages, v)
		if items, size = items+len(v.items), size+
			m.Size(); items > call.settings.Limits.ListItems ||
			size > maxListBytes {
			p.answers, p.pages = p.answers[:n-1], p.pages[:n-1]
			return srv.unavailable(fmt.Sprintf("its list has more than %d items, or %d bytes "+
				"([limits] list_items)", call.settings.Limits.ListItems, maxListBytes))
		}
		next, more := m.Get("/nextCursor")
		switch cursor, ok := m.Text("/nextCursor"); {
		case !more || string(next) == "null":
			return nil
		case !ok:
			return srv.unavailable("its nextCursor is no string")
		case n > 1 && cursor == sentCursor:
			return srv.unavailable("its nextCursor is the cursor of the same page")
		case n >= call.settings.Limits.ListPages:
			return srv.unavailable(fmt.Sprintf(
				"its list has more than %d pages ([limits] list_pages)", n))
		default:
			sentCursor = cursor
		}
		if page, err = first.Edit(mcp.Set("/cursor", next)); err != nil {
			return err
		}
	}
}

// cursor is the start of a page of a merged list. It is valid for the list that it was made of:
// once the list has changed, the client must begin again.
type cursor struct {
	From   int    `json:"f"`
	Digest string `json:"d"`
}

// mergeList merges the servers' pages, in the order of the configuration, and returns the members
// of the page that begins at start.
func (call *Call) mergeList(meth mcp.Method, good []*serverPart, start cursor) ([]member, error) {
	var results []*mcp.Message
	var items [][]byte
	size := 0
	for _, p := range good {
		for i, v := range p.pages {
			// which URIs several servers list is known only now that all have answered
			if !call.settings.sharesPages() {
				var err error
				if v, err = call.settings.pages.page(call, meth, p.answers[i], i+1); err != nil {
					return nil, err
				}
			}
			if size += v.m.Size(); len(items)+len(v.items) > call.settings.Limits.ListItems ||
				size > maxListBytes {
				p.err = &UnavailableError{Server: p.server,
					Reason: "with its items the merged list would be too long " +
						"([limits] list_items)"}
				break
			}
			results, items = append(results, v.m), append(items, v.items...)
		}
	}
	name := meth.ItemsPointer[1:]
	rest := call.mergeOtherMembers(results, name, "nextCursor")
	page, next, err := call.page(meth, items, start)
	if err != nil {
		return nil, err
	}
	members := []member{listField(name, page)}
	if next != "" {
		members = append(members, textField("nextCursor", next))
	}
	return append(members, rest...), nil
}

// page returns one page of the items, from start on, and the cursor of the next page; "" when there
// is none.
func (call *Call) page(meth mcp.Method, items [][]byte,
	start cursor) (page [][]byte, next string, err error) {
	if start.From == 0 && len(items) <= call.settings.Limits.PageItems {
		return items, "", nil
	}
	hash := sha256.New()
	for _, raw := range items {
		hash.Write(raw)
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	if start.From > 0 && (start.Digest != digest || start.From >= len(items)) {
		return nil, "", requestErrorf(mcp.CodeInvalidParams,
			"invalid cursor: the list has changed, ask again without one")
	}
	end := min(start.From+call.settings.Limits.PageItems, len(items))
	if end == len(items) {
		return items[start.From:], "", nil
	}
	if next, err = call.session.proxy.seal.seal(cursor{end, digest},
		"cursor", call.request.Principal, meth.Name); err != nil {
		return nil, "", fmt.Errorf("make a cursor: %w", err)
	}
	return items[start.From:end], next, nil
}
