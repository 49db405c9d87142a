package upstream

import (
	"bytes"
	"strconv"

	"gatekit/core/mcp"
)

// What a legacy server says, in the words of a modern client (protocol.md 3), and what each era's
// clients declare, in those of the other. Nothing here keeps anything.

// resultForModern is a legacy server's result as a modern client is to get it. request is the
// client's, hello what the server answered to initialize.
func resultForModern(request, m, hello *mcp.Message) (*mcp.Message, error) {
	if !bytes.HasPrefix(m.Body(), []byte("{")) {
		return m, nil // the proxy says what is wrong with it
	}
	edits := []mcp.Edit{mcp.Set("/resultType", []byte(`"complete"`))}
	if meth, _ := mcp.Lookup(request.Method); meth.ItemsAt != "" ||
		request.Method == "resources/read" || request.Method == "server/discover" {
		edits = append(edits, mcp.Set("/ttlMs", []byte("0")), mcp.Set("/cacheScope",
			[]byte(`"private"`)))
	}
	if info, ok := hello.Get("/serverInfo"); ok {
		edits = append(edits, mcp.Set(mcp.PointerServerInfo, info))
	}
	if request.Method == "tools/list" {
		m.Items("/tools", func(i int, raw []byte) bool {
			// of a design of tasks that modern clients do not know
			if _, ok := mcp.NewResponse("", raw).Get("/execution"); ok {
				edits = append(edits, mcp.Remove("/tools/"+strconv.Itoa(i)+"/execution"))
			}
			return true
		})
	}
	return m.Edit(edits...)
}

// errorForModern is a legacy server's error as a modern client is to get it (protocol.md 3.10):
// codes that mean something else, or nothing yet, to that client go.
func errorForModern(request, m *mcp.Message) (*mcp.Message, error) {
	switch code := m.ErrorCode(); {
	case code == mcp.CodeMissingCapability && lacks(request, m):
		// which is what it means to the client, too
	case code == mcp.CodeNotFound:
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInvalidParams))))
	case code <= -32020 && code >= -32099:
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInternal))),
			mcp.Set("/data", []byte(`{"upstreamError":`+string(m.Body())+`}`)))
	}
	return m, nil
}

// lacks says whether the client did not declare what an error says it would have to.
func lacks(request, m *mcp.Message) (lacks bool) {
	m.Members("/data/requiredCapabilities", func(capability string, _ []byte) bool {
		_, declared := request.Get(mcp.PointerCapabilities + "/" + mcp.EscapePointer(capability))
		lacks = lacks || !declared
		return !lacks
	})
	return lacks
}

// helloForModern is what a legacy server answered to initialize as the answer to server/discover.
func helloForModern(request, hello *mcp.Message) (*mcp.Message, error) {
	versions := []byte("[")
	for i, revision := range mcp.Revisions() {
		if i > 0 {
			versions = append(versions, ',')
		}
		versions = append(versions, mcp.Quote(revision)...)
	}
	m, err := resultForModern(request, hello, hello)
	if err != nil {
		return nil, err
	}
	m, err = m.Edit(mcp.Set("/supportedVersions", append(versions, ']')),
		mcp.Remove("/protocolVersion"), mcp.Remove("/serverInfo"),
		mcp.Remove("/capabilities/tasks"))
	if err != nil {
		return nil, err
	}
	return m.WithID(request.ID()), nil
}

// capabilitiesForLegacy are what a modern client declared with a request, as a legacy server is to
// be told once.
func capabilitiesForLegacy(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return []byte("{}"), nil
	}
	m := mcp.NewResponse("", raw)
	edits := []mcp.Edit{mcp.Remove("/extensions"), mcp.Remove("/tasks")}
	if _, ok := m.Get("/roots"); ok {
		edits = append(edits, mcp.Set("/roots", []byte("{}"))) // it will not say that they changed
	}
	m, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return m.Body(), nil
}

// questionForModern is a reverse request of a legacy server as a modern client is to get it:
// without what belongs to messages that it does not have.
func questionForModern(m *mcp.Message) (*mcp.Message, error) {
	edits := append(unreserved(m, "progressToken"), mcp.Remove("/task"),
		mcp.Remove("/elicitationId"))
	return m.Edit(edits...)
}

// capabilitiesForModern are what a legacy client declared, as a modern server is to be told with
// each request: raw may be nil.
func capabilitiesForModern(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return []byte("{}"), nil
	}
	m := mcp.NewResponse("", raw)
	edits := []mcp.Edit{mcp.Remove("/tasks")} // of another design
	if _, ok := m.Get("/roots"); ok {
		// there is no way to say that they changed
		edits = append(edits, mcp.Set("/roots", []byte("{}")))
	}
	m, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return m.Body(), nil
}
