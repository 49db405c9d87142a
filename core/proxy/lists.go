package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// listWait is how long one silent server may keep the others' items waiting.
const listWait = 20 * time.Second

// maxListBytes bounds one merged list.
const maxListBytes = 64 << 20

// broadcast puts a request to all servers that can answer it and makes one answer of theirs.
func (x *exchange) broadcast(ctx context.Context, meth mcp.Method) (pipeline.Passed, error) {
	var at cursor
	raw, paged := x.m.Get("/cursor")
	if paged {
		token, _ := x.m.Text("/cursor")
		if x.s.proxy.seal.open(token, &at, "cursor", x.m.Principal, meth.Name) != nil {
			return pipeline.Passed{}, failure(mcp.CodeInvalidParams, "invalid cursor %.100s: ask again without one", raw)
		}
	}
	parts := x.gather(ctx, meth)
	if ctx.Err() != nil {
		return pipeline.Passed{}, context.Cause(ctx)
	}
	switch {
	case meth.ItemsAt != "":
		return x.merged(ctx, parts, func(good []part) ([]member, error) { return x.mergeList(meth, good, at) })
	case meth.Name == "server/discover":
		versions := make([][]byte, 0, 5)
		for _, r := range x.s.proxy.Revisions(ctx) {
			versions = append(versions, mcp.Quote(r))
		}
		return x.merged(ctx, parts, func(good []part) ([]member, error) {
			members, err := x.mergeHello(good)
			return append([]member{{"supportedVersions", array(versions)}}, members...), err
		})
	default: // logging/setLevel: a plain "done"
		return x.merged(ctx, parts, func(good []part) ([]member, error) {
			return mergeRest([]*mcp.Message{good[0].answers[0].Message()}), nil
		})
	}
}

// gather asks all servers at once.
func (x *exchange) gather(ctx context.Context, meth mcp.Method) []part {
	links := x.s.ordered(x.c)
	parts := make([]part, len(links))
	var wg sync.WaitGroup
	for i, l := range links {
		parts[i].server = l.conf.Name
		if l.lacks(meth.Capability) {
			parts[i].err = errNone
			continue
		}
		wg.Go(func() { x.drain(ctx, l, meth, &parts[i]) })
	}
	wg.Wait()
	return parts
}

// drain asks one server, page by page. What came before a failure is kept, unless it is nothing.
func (x *exchange) drain(ctx context.Context, l *link, meth mcp.Method, p *part) {
	m := *x.m
	m.Server = l.conf.Name
	// One token cannot follow the progress of several servers, and the cursor is ours.
	first, err := m.Edit(mcp.Remove("/cursor"), mcp.Remove("/_meta/progressToken"))
	if err != nil {
		p.err = err
		return
	}
	page := first
	for n := 1; ; n++ {
		answer, err := x.ask(ctx, l, page)
		if err != nil {
			p.err = err
			return
		}
		if p.add(answer); p.err != nil || meth.ItemsAt == "" {
			return
		}
		next, more := answer.Message().Get("/nextCursor")
		if !more || string(next) == "null" {
			return
		}
		if n >= x.c.Limits.ListPages {
			p.err = &Unavailable{Server: l.conf.Name, Reason: fmt.Sprintf("its list has more than %d pages", n)}
			return
		}
		if page, p.err = first.Edit(mcp.Set("/cursor", next)); p.err != nil {
			return
		}
	}
}

// cursor is where a page of a merged list begins. It holds for the list that it was made of: once the list has changed, the client must begin again.
type cursor struct {
	From   int    `json:"f"`
	Digest string `json:"d"`
}

// mergeList makes one list of the servers' pages, in the order of the configuration, and answers the page at at.
func (x *exchange) mergeList(meth mcp.Method, good []part, at cursor) ([]member, error) {
	var pages []pipeline.Passed
	for _, p := range good {
		pages = append(pages, p.answers...)
	}
	if x.c.names.resources == "transparent" {
		for _, p := range pages { // what several servers list is told apart only when all have been heard
			if _, err := x.s.expose(x.c, p); err != nil {
				return nil, err
			}
		}
	}
	var results []*mcp.Message
	var items [][]byte
	size := 0
	for _, p := range pages {
		shown, err := x.s.expose(x.c, p)
		if err != nil {
			return nil, fmt.Errorf("name what server %q listed: %w", p.Message().Server, err)
		}
		m := shown.Message()
		results = append(results, m)
		m.Items(meth.ItemsAt, func(_ int, raw []byte) bool {
			items = append(items, raw)
			size += len(raw)
			return true
		})
	}
	if len(items) > x.c.Limits.ListItems || size > maxListBytes {
		return nil, failure(mcp.CodeInternal, "the servers list %d items in %d bytes for %s: more than Gatekit may merge ([limits] list_items)", len(items), size, meth.Name)
	}
	name := meth.ItemsAt[1:]
	rest := mergeRest(results, name, "nextCursor")
	if len(items) <= x.c.Limits.PageItems {
		return append([]member{{name, array(items)}}, rest...), nil
	}
	hash := sha256.New()
	for _, raw := range items {
		hash.Write(raw)
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	if at.From > 0 && (at.Digest != digest || at.From >= len(items)) {
		return nil, failure(mcp.CodeInvalidParams, "invalid cursor: the list has changed, ask again without one")
	}
	end := min(at.From+x.c.Limits.PageItems, len(items))
	members := []member{{name, array(items[at.From:end])}}
	if end < len(items) {
		token, err := x.s.proxy.seal.seal(cursor{end, digest}, "cursor", x.m.Principal, meth.Name)
		if err != nil {
			return nil, errors.Join(errors.New("make a cursor"), err)
		}
		members = append(members, member{"nextCursor", mcp.Quote(token)})
	}
	return append(members, rest...), nil
}
