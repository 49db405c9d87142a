package bridge

import (
	"bytes"
	"strconv"

	"gatekit/core/mcp"
)

// This file translates messages of a legacy server for a modern client. It keeps no state.

// resultForModern returns m, a legacy server's result, translated for a modern client. request is
// the client's request. initializeAnswer is the server's answer to initialize.
func resultForModern(request, m, initializeAnswer *mcp.Message) (*mcp.Message, error) {
	if !bytes.HasPrefix(m.Body(), []byte("{")) {
		return m, nil // the proxy refuses such a result
	}
	edits := []mcp.Edit{mcp.Set("/resultType", []byte(`"complete"`))}
	if isCacheable(request.Method) {
		edits = append(edits, mcp.Set("/ttlMs", []byte("0")), mcp.Set("/cacheScope",
			[]byte(`"private"`)))
	}
	if info, ok := initializeAnswer.Get("/serverInfo"); ok {
		edits = append(edits, mcp.Set(mcp.PointerServerInfo, info))
	}
	if request.Method == "tools/list" {
		m.Items("/tools", func(i int, raw []byte) bool {
			// Modern revisions have another design of tasks.
			if _, ok := mcp.NewResponse("", raw).Get("/execution"); ok {
				edits = append(edits, mcp.Remove("/tools/"+strconv.Itoa(i)+"/execution"))
			}
			return true
		})
	}
	return m.Edit(edits...)
}

// isCacheable reports whether the results of a method must have cache hints.
func isCacheable(method string) bool {
	switch method {
	case "resources/read", "server/discover", "skills/get":
		return true
	case "resources/directory/read":
		return false
	}
	m, _ := mcp.LookupMethod(method)
	return m.ItemsPointer != ""
}

// errorForModern returns m, a legacy server's error, translated for a modern client. It replaces an
// error code that the client's revision reserves or gives another meaning.
func errorForModern(request, m *mcp.Message) (*mcp.Message, error) {
	switch code := m.ErrorCode(); {
	case code == mcp.CodeMissingCapability && lacksCapability(request, m):
		// the code means the same in the client's revision
	case code == mcp.CodeResourceNotFound:
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInvalidParams))))
	case code <= -32020 && code >= -32099:
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInternalError))),
			mcp.Set("/data", []byte(`{"upstreamError":`+string(m.Body())+`}`)))
	}
	return m, nil
}

// lacksCapability reports whether the client did not declare a capability that an error demands.
func lacksCapability(request, m *mcp.Message) bool {
	lacks := false
	m.Members("/data/requiredCapabilities", func(capability string, _ []byte) bool {
		_, declared := request.Get(mcp.PointerCapabilities + "/" + mcp.EscapePointer(capability))
		lacks = lacks || !declared
		return !lacks
	})
	return lacks
}

// discoverResultForModern returns the answer to a client's server/discover, which is the parameter
// request. The answer is made from a legacy server's answer to initialize.
func discoverResultForModern(request, initializeAnswer *mcp.Message) (*mcp.Message, error) {
	versions := []byte("[")
	for i, revision := range mcp.Revisions() {
		if i > 0 {
			versions = append(versions, ',')
		}
		versions = append(versions, mcp.Quote(revision)...)
	}
	m, err := resultForModern(request, initializeAnswer, initializeAnswer)
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

// questionForModern returns a request of a legacy server, translated for a modern client. It
// removes the members that refer to features of legacy revisions only.
func questionForModern(m *mcp.Message) (*mcp.Message, error) {
	edits := append(mcp.RemoveReservedMeta(m, "progressToken"), mcp.Remove("/task"),
		mcp.Remove("/elicitationId"))
	return m.Edit(edits...)
}
