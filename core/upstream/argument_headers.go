package upstream

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

// maxAnnotatedTools is how many tools of one server are remembered. Without this limit, a long list
// could fill the memory.
const maxAnnotatedTools = 10_000

// argumentHeaders knows which arguments of a call must be repeated in HTTP headers, for each tool
// of a server. The input schema of the tool has an annotation for each of these arguments.
type argumentHeaders struct {
	listing chan struct{} // contains a token while the tools are being listed

	mu     sync.Mutex
	byTool map[string][]argumentHeader // only tools with arguments that are repeated in headers
	// all tools have been listed, so no header repeats an argument of a tool that is not in byTool
	complete bool
}

// argumentHeader is one argument that is repeated in a header.
type argumentHeader struct {
	header  string
	pointer string // JSON pointer to the argument in the params of a call
}

func newArgumentHeaders() *argumentHeaders {
	return &argumentHeaders{listing: make(chan struct{}, 1)}
}

// forget discards all known arguments, so that the next call lists the tools again.
func (a *argumentHeaders) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byTool, a.complete = nil, false
}

// record records the annotated arguments in an answer to tools/list.
func (a *argumentHeaders) record(request, answer *mcp.Message) {
	if answer.Kind != mcp.Response {
		return
	}
	found := make(map[string][]argumentHeader)
	if bytes.Contains(answer.Body(), []byte(mcp.HeaderAnnotation)) {
		answer.Items("/tools", func(_ int, raw []byte) bool {
			if name, ok := mcp.NewResponse("", raw).Text("/name"); ok {
				found[name] = annotatedArguments(raw)
			}
			return true
		})
	}
	_, continued := request.Get("/cursor")
	_, more := answer.Get("/nextCursor")
	a.mu.Lock()
	defer a.mu.Unlock()
	if !continued || a.byTool == nil {
		if !continued && !more {
			a.byTool = nil
		}
		if a.byTool == nil {
			a.byTool = make(map[string][]argumentHeader)
		}
	}
	for name, arguments := range found {
		delete(a.byTool, name)
		if len(arguments) > 0 && len(a.byTool) < maxAnnotatedTools {
			a.byTool[name] = arguments
		}
	}
	a.complete = a.complete || !more
}

// annotatedArguments returns the annotated arguments of a tool. It leaves out annotations that are
// not valid header names.
func annotatedArguments(tool []byte) []argumentHeader {
	var found []argumentHeader
	mcp.VisitHeaderAnnotations(tool, func(header, pointer string) {
		if isHeaderToken(header) {
			found = append(found, argumentHeader{"Mcp-Param-" + header, pointer})
		}
	})
	return found
}

func isHeaderToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// set sets the headers for the arguments of a tools/call. It calls the function list when the tool
// is not known and the tools have never been listed to the end.
func (a *argumentHeaders) set(ctx context.Context, h http.Header, call *mcp.Message,
	list func() []*mcp.Message) error {
	if a.isEmpty() {
		return nil
	}
	name, _ := call.Text("/name")
	arguments, known := a.lookup(name)
	if !known {
		select {
		case a.listing <- struct{}{}:
			defer func() { <-a.listing }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// Another call may have listed the tools meanwhile.
		if arguments, known = a.lookup(name); !known {
			a.recordAll(list)
			arguments, _ = a.lookup(name)
		}
	}
	for _, argument := range arguments {
		if v, ok := argumentValue(call, argument.pointer); ok {
			h[http.CanonicalHeaderKey(argument.header)] = []string{v}
		}
	}
	return nil
}

// isEmpty reports whether all tools are known and no tool has arguments that headers repeat.
func (a *argumentHeaders) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.complete && len(a.byTool) == 0
}

// lookup returns the arguments of a tool, and whether the tool is known.
func (a *argumentHeaders) lookup(tool string) (arguments []argumentHeader, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	arguments, known = a.byTool[tool]
	return arguments, known || a.complete
}

// recordAll records the annotations of all tools in the pages that the function list returns. Then
// all tools count as known, even if a page could not be read. Otherwise each call would list
// the tools again.
func (a *argumentHeaders) recordAll(list func() []*mcp.Message) {
	request := mcp.NewRequest("0", "tools/list", nil)
	for _, page := range list() {
		a.record(request, page)
		// For record, a request with a cursor continues the list.
		request = mcp.NewRequest("0", "tools/list", []byte(`{"cursor":""}`))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.complete = true
}

// argumentValue returns the header value of an argument. ok is false when the argument is absent,
// null, an object or an array.
func argumentValue(m *mcp.Message, pointer string) (v string, ok bool) {
	raw, ok := m.Get(pointer)
	if !ok || len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		v, ok = m.Text(pointer)
		return encodeHeader(v), ok
	case 't', 'f':
		return string(raw), true
	case 'n', '{', '[':
		return "", false
	}
	// 42.0 and 4.2e1 are written as the integer 42.
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil && f == float64(int64(f)) &&
		f >= -1<<53 && f <= 1<<53 {
		return strconv.FormatInt(int64(f), 10), true
	}
	return string(raw), true
}
