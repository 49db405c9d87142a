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

// listWait is how long one server may keep the others' items waiting, with all of its pages.
const listWait = 20 * time.Second

// maxListBytes bounds what is taken from one server for a list, and one merged list.
const maxListBytes = 64 << 20

// broadcast puts a request to all servers that can answer it and makes one answer of theirs.
func (x *Call) broadcast(ctx context.Context, meth mcp.Method) (pipeline.Passed, error) {
	var at cursor
	if raw, paged := x.m.Get("/cursor"); paged {
		token, _ := x.m.Text("/cursor")
		if x.s.proxy.seal.open(token, &at, "cursor", x.m.Principal, meth.Name) != nil {
			return pipeline.Passed{}, failure(mcp.CodeInvalidParams,
				"invalid cursor %.100s: ask again without one", raw)
		}
	}
	parts := x.gather(ctx, meth)
	if ctx.Err() != nil {
		return pipeline.Passed{}, context.Cause(ctx)
	}
	switch {
	case meth.ItemsPointer != "":
		return x.list(ctx, meth, parts, at)
	case meth.Name == "server/discover":
		versions := make([][]byte, 0, 5)
		for _, r := range mcp.Revisions() {
			versions = append(versions, mcp.Quote(r))
		}
		return x.merged(ctx, parts, func(good []*part) ([]member, error) {
			members, err := x.mergeHello(good)
			return append([]member{listField("supportedVersions", versions)}, members...), err
		})
	}
	// logging/setLevel: a plain "done", unless it makes no sense.
	for _, p := range parts {
		if m := p.refused.Message(); m != nil && m.ErrorCode() == mcp.CodeInvalidParams {
			return x.s.expose(x.c, p.refused)
		}
	}
	return x.merged(ctx, parts, func(good []*part) ([]member, error) {
		return x.mergeRest([]*mcp.Message{good[0].answers[0].Message()}), nil
	})
}

// list makes one list of the servers' parts.
func (x *Call) list(ctx context.Context, meth mcp.Method, parts []part,
	at cursor) (pipeline.Passed, error) {
	var views []*view
	for _, p := range parts {
		views = append(views, p.views...)
	}
	same := at.From == 0 && len(bad(parts)) == 0 && x.c.shows()
	if same {
		if m := x.c.views.list(meth.Name, views); m != nil {
			return x.c.Pipeline.PassOwn(ctx, x.answers(m.WithID(x.m.ID()))), nil
		}
	}
	answer, err := x.merged(ctx, parts, func(good []*part) ([]member, error) {
		return x.mergeList(meth, good, at)
	})
	if m := answer.Message(); same && err == nil && m != nil && m.Kind == mcp.Response {
		// a cursor is made for one principal
		if _, more := m.Get("/nextCursor"); !more && len(bad(parts)) == 0 {
			x.c.views.keep(meth.Name, views, m)
		}
	}
	return answer, err
}

// gather asks all servers at once.
func (x *Call) gather(ctx context.Context, meth mcp.Method) []part {
	links := x.s.ordered(x.c)
	parts := make([]part, len(links))
	var wg sync.WaitGroup
	for i, l := range links {
		parts[i].server = l.name
		if l.lacks(meth.Capability) {
			parts[i].err = errNone
			continue
		}
		wg.Go(func() { parts[i].err = x.drain(ctx, l, meth, &parts[i]) })
	}
	wg.Wait()
	return parts
}

// drain asks one server, page by page. What came before a failure is kept.
func (x *Call) drain(ctx context.Context, l *link, meth mcp.Method, p *part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, _ := x.times(l)
	w := x.watch(l, min(idle, listWait), listWait, cancel)
	defer w.stop()
	m := *x.m
	m.Server = l.name
	// One token cannot follow the progress of several servers, and the cursor is ours.
	first, err := m.Edit(mcp.Remove("/cursor"), mcp.Remove("/_meta/progressToken"))
	if err == nil {
		first, err = x.s.strip(x.c, first)
	}
	if err != nil {
		return err
	}
	page, at, items, size := first, "", 0, 0
	for n := 1; ; n++ {
		answer, err := x.ask(ctx, l, page, w)
		if err != nil {
			return err
		}
		m := answer.Message()
		if err := p.add(answer); err != nil || meth.ItemsPointer == "" {
			return err
		}
		v, err := x.c.views.of(x, meth, answer, n)
		if err != nil {
			return err
		}
		p.views = append(p.views, v)
		if items, size = items+len(v.items), size+m.Size(); items > x.c.Limits.ListItems ||
			size > maxListBytes {
			p.answers, p.views = p.answers[:n-1], p.views[:n-1]
			return l.unavailable(fmt.Sprintf("its list has more than %d items, or %d bytes "+
				"([limits] list_items)", x.c.Limits.ListItems, maxListBytes))
		}
		next, more := m.Get("/nextCursor")
		switch cursor, ok := m.Text("/nextCursor"); {
		case !more || string(next) == "null":
			return nil
		case !ok:
			return l.unavailable("its nextCursor is no string")
		case n > 1 && cursor == at:
			return l.unavailable("its nextCursor is the one that it was asked with")
		case n >= x.c.Limits.ListPages:
			return l.unavailable(fmt.Sprintf(
				"its list has more than %d pages ([limits] list_pages)", n))
		default:
			at = cursor
		}
		if page, err = first.Edit(mcp.Set("/cursor", next)); err != nil {
			return err
		}
	}
}

// cursor is where a page of a merged list begins. It holds for the list that it was made of: once
// the list has changed, the client must begin again.
type cursor struct {
	From   int    `json:"f"`
	Digest string `json:"d"`
}

// mergeList makes one list of the servers' pages, in the order of the configuration, and answers
// the page at at.
func (x *Call) mergeList(meth mcp.Method, good []*part, at cursor) ([]member, error) {
	var results []*mcp.Message
	var items [][]byte
	size := 0
	for _, p := range good {
		for i, v := range p.views {
			// what several servers list is told apart only now that all have been heard
			if !x.c.shows() {
				var err error
				if v, err = x.c.views.of(x, meth, p.answers[i], i+1); err != nil {
					return nil, err
				}
			}
			if size += v.m.Size(); len(items)+len(v.items) > x.c.Limits.ListItems ||
				size > maxListBytes {
				p.err = &UnavailableError{Server: p.server,
					Reason: "its items are too many, with those of the others ([limits] list_items)"}
				break
			}
			results, items = append(results, v.m), append(items, v.items...)
		}
	}
	name := meth.ItemsPointer[1:]
	rest := x.mergeRest(results, name, "nextCursor")
	page, next, err := x.page(meth, items, at)
	if err != nil {
		return nil, err
	}
	members := []member{listField(name, page)}
	if next != "" {
		members = append(members, textField("nextCursor", next))
	}
	return append(members, rest...), nil
}

// page is the part of items that begins at at, and the cursor of the next; "" when there is none.
func (x *Call) page(meth mcp.Method, items [][]byte,
	at cursor) (page [][]byte, next string, err error) {
	if at.From == 0 && len(items) <= x.c.Limits.PageItems {
		return items, "", nil
	}
	hash := sha256.New()
	for _, raw := range items {
		hash.Write(raw)
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	if at.From > 0 && (at.Digest != digest || at.From >= len(items)) {
		return nil, "", failure(mcp.CodeInvalidParams,
			"invalid cursor: the list has changed, ask again without one")
	}
	end := min(at.From+x.c.Limits.PageItems, len(items))
	if end == len(items) {
		return items[at.From:], "", nil
	}
	if next, err = x.s.proxy.seal.seal(cursor{end, digest}, "cursor", x.m.Principal,
		meth.Name); err != nil {
		return nil, "", fmt.Errorf("make a cursor: %w", err)
	}
	return items[at.From:end], next, nil
}
