package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// listWait bounds the time that one server has for all pages of a list.
const listWait = 20 * time.Second

// maxListBytes bounds the list of one server, and one merged list.
const maxListBytes = 64 << 20

// broadcast sends a request to all servers that support it and merges their answers.
func (call *Call) broadcast(ctx context.Context, meth mcp.Method) (pipeline.Passed, error) {
	var start cursor
	if raw, paged := call.request.Get("/cursor"); paged {
		token, _ := call.request.Text("/cursor")
		if call.session.proxy.seal.open(token, &start, "cursor", call.request.Principal.ID(),
			meth.Name) != nil {
			return pipeline.Passed{}, requestErrorf(mcp.CodeInvalidParams,
				"invalid cursor %.100s: ask again without a cursor", raw)
		}
	}
	parts := call.askAll(ctx, meth)
	if ctx.Err() != nil {
		return pipeline.Passed{}, context.Cause(ctx)
	}
	if err := call.inspectUnsent(ctx); err != nil { // only needed if no server got the request
		return pipeline.Passed{}, err
	}
	switch {
	case meth.ItemsPointer != "":
		return call.listAnswer(ctx, meth, parts, start)
	case meth.Name == "server/discover":
		call.declareForLogin(parts)
		versions := make([][]byte, 0, 5)
		for _, r := range mcp.Revisions() {
			versions = append(versions, mcp.Quote(r))
		}
		return call.mergeParts(ctx, parts, func(good []*serverPart) ([]member, error) {
			members, err := call.mergeServerInfo(good)
			return append([]member{listField("supportedVersions", versions)}, members...), err
		})
	}
	// The method is logging/setLevel. If a server finds the level invalid, the answer is the error
	// of that server.
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

// askedServer is one server's part of a merged answer while the server is being asked.
type askedServer struct {
	server *sessionServer
	method string
	ctx    context.Context // of the requests to the server; it may outlive the call
	cancel context.CancelCauseFunc
	detach func() bool // keeps ctx from ending with the call

	mu       sync.Mutex
	part     serverPart // the answers so far
	deadline *deadline  // nil before the server is asked
	isDone   bool
	isLate   bool // the client has its answer already
}

// publish stores p, the server's answers so far.
func (a *askedServer) publish(p serverPart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.part = p
}

// finish notes that the server has answered completely, or has failed with err. isLate reports
// whether the client already has its answer.
func (a *askedServer) finish(err error) (part serverPart, isLate bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.part.err, a.isDone = err, true
	return a.part, a.isLate
}

// leave returns the server's answers so far. If the server is not done, its further answers are
// read in the background.
func (a *askedServer) leave() (part serverPart, isLate bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isDone {
		return a.part, false
	}
	a.isLate = true
	a.server.beginLateAnswer(a.method)
	a.detach()
	part = a.part
	part.isLate = true
	part.err = a.server.unavailable("it has not answered in time; its items come later")
	return part, true
}

// isAsking reports whether the server has asked the client something and waits for the answer.
func (a *askedServer) isAsking() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.isDone && a.deadline.isPaused()
}

// askAll calls all servers at once. It does not wait for servers that take much longer than the
// others: their answers are read in the background, and then the client is notified.
func (call *Call) askAll(ctx context.Context, meth mcp.Method) []serverPart {
	s, patience := call.session, &call.session.proxy.patience
	servers := s.serversInOrder(call.settings)
	parts := make([]serverPart, len(servers))
	asked := make([]*askedServer, len(servers))
	answered := make(chan int, len(servers))
	wait := &answerWait{began: time.Now(), servers: make([]serverWait, len(servers)),
		withoutAnswer: listWait, withoutAnswerLate: firstPatience}
	for i, srv := range servers {
		parts[i].server = srv.name
		switch {
		case srv.lacksCapability(meth.Capability):
			parts[i].err = errUnsupported
			wait.noteGood()
			continue
		case srv.isAnsweringLate(meth.Name):
			parts[i].isLate = true
			parts[i].err = srv.unavailable("it has not answered the last " + meth.Name + " yet")
			continue
		}
		limit, isLate := patience.limit(patienceKey{srv.upstream, meth.Name})
		if srv.isStartingLate() {
			limit, isLate = latePatience, true
		}
		wait.add(i, limit, isLate)
		a := &askedServer{server: srv, method: meth.Name, part: parts[i]}
		a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		a.detach = context.AfterFunc(ctx, func() { a.cancel(context.Cause(ctx)) })
		asked[i] = a
		if !s.runInBackground(func(background context.Context) {
			defer context.AfterFunc(background, func() { a.cancel(context.Cause(background)) })()
			call.ask(a, meth)
			answered <- i
		}) {
			a.cancel(errClosed)
			a.finish(errClosed)
			wait.note(i, false)
		}
	}
	call.awaitAnswers(ctx, wait, asked, answered)
	s.uriOwners.noteListed(meth.Name)
	for i, a := range asked {
		if a == nil || ctx.Err() != nil {
			continue
		}
		var isLate bool
		if parts[i], isLate = a.leave(); isLate {
			patience.noteLate(patienceKey{a.server.upstream, meth.Name})
			call.settings.Log.Info("server not waited for", "server", a.server.name,
				"method", meth.Name)
		}
	}
	return parts
}

// awaitAnswers waits until each server has answered or its time has passed.
func (call *Call) awaitAnswers(ctx context.Context, wait *answerWait, asked []*askedServer,
	answered <-chan int) {
	for left := wait.left(); left > 0; left = wait.left() {
		timer := time.NewTimer(left)
		select {
		case i := <-answered:
			asked[i].mu.Lock()
			isGood := len(asked[i].part.answers) > 0 || errors.Is(asked[i].part.err, errUnsupported)
			asked[i].mu.Unlock()
			wait.note(i, isGood)
		case <-timer.C:
			for i, a := range asked {
				// the client's user may need long for an answer; that time has a bound of its own
				if a != nil && wait.servers[i].isWaited && a.isAsking() {
					wait.servers[i].limit += shortestPatience
				}
			}
		case <-ctx.Done():
			timer.Stop()
			for _, s := range wait.servers {
				if s.isWaited {
					<-answered // the requests to the servers end with the call
				}
			}
			return
		}
		timer.Stop()
	}
}

// ask asks one server. If the client already has its answer when the server is done, ask notifies
// the client that the list has changed.
func (call *Call) ask(a *askedServer, meth mcp.Method) {
	defer a.cancel(nil)
	defer a.detach()
	srv, began := a.server, time.Now()
	err := call.fetchPages(a.ctx, srv, meth, a)
	isStopped := errors.As(err, new(*timeoutError)) || a.ctx.Err() != nil
	part, isLate := a.finish(err)
	switch key := (patienceKey{srv.upstream, meth.Name}); {
	case errors.As(err, new(*timeoutError)):
		call.session.proxy.patience.noteLate(key)
	case !isStopped:
		call.session.proxy.patience.noteAnswer(key, time.Since(began))
	}
	if !isLate {
		return
	}
	srv.endLateAnswer(meth.Name)
	if len(part.answers) > 0 && (err == nil || call.needsLogin(part)) {
		call.announceLate(call.session.backgroundContext, srv, meth)
	}
}

// announceLate notifies the client that the list has changed, because a server has answered after
// the client got its answer.
func (call *Call) announceLate(ctx context.Context, srv *sessionServer, meth mcp.Method) {
	if meth.Name == "server/discover" {
		call.session.announceListChanges(ctx, srv)
	} else if meth.ItemsPointer != "" && slices.Contains(listFeatures, meth.Capability) {
		call.session.notifyListChange(ctx, srv, meth.Capability, call.session.notifyClient)
	}
}

// fetchPages fetches the answer of one server, page by page, and publishes the pages in the
// askedServer. After a failure, the pages before the failure stay published.
func (call *Call) fetchPages(ctx context.Context, srv *sessionServer, meth mcp.Method,
	a *askedServer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, _ := call.settings.timeouts(srv.name)
	d := call.startDeadline(srv, min(idle, listWait), listWait, cancel)
	defer d.stop()
	a.mu.Lock()
	a.deadline = d
	a.mu.Unlock()
	p := serverPart{server: srv.name}
	m := *call.request
	m.Server = srv.name
	// One progress token cannot serve several servers, and the cursor is Gatekit's own.
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
		switch isTools := meth.Name == "tools/list"; {
		case isTools && n == 1 && call.connectToolOf(srv, err) != nil:
			return call.publishConnectTool(ctx, srv, page, a, err)
		case err != nil:
			return err
		case isTools && answer.Message().Kind == mcp.Response:
			srv.noteTools(ownerServer)
		}
		m := answer.Message()
		if err := p.add(answer); err != nil || meth.ItemsPointer == "" {
			a.publish(p)
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
			return srv.unavailable(fmt.Sprintf("its list has more than %d items, or %d bytes "+
				"([limits] list_items)", call.settings.Limits.ListItems, maxListBytes))
		}
		a.publish(p)
		next, more := m.Get("/nextCursor")
		switch cursor, ok := m.Text("/nextCursor"); {
		case !more || string(next) == "null":
			srv.noteSeen(meth.Name)
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

// cursor is the start of a page of a merged list. It is valid only while the list has the same
// digest. When the list has changed, the client must begin again.
type cursor struct {
	From   int    `json:"f"` // index of the page's first item
	Digest string `json:"d"` // of all items of the list
}

// mergeList merges the servers' pages, in the order of the configuration, and returns the members
// of the page that begins at start.
func (call *Call) mergeList(meth mcp.Method, good []*serverPart, start cursor) ([]member, error) {
	var results []*mcp.Message
	var items [][]byte
	size := 0
	for _, p := range good {
		for i, v := range p.pages {
			// the prefixes of URIs depend on the lists of all servers, which are known only now
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

// page returns the page of the items that begins at start. next is the cursor of the next page, or
// "" if there is no next page.
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
			"invalid cursor: the list has changed, ask again without a cursor")
	}
	end := min(start.From+call.settings.Limits.PageItems, len(items))
	if end == len(items) {
		return items[start.From:], "", nil
	}
	if next, err = call.session.proxy.seal.seal(cursor{end, digest},
		"cursor", call.request.Principal.ID(), meth.Name); err != nil {
		return nil, "", fmt.Errorf("make a cursor: %w", err)
	}
	return items[start.From:end], next, nil
}
