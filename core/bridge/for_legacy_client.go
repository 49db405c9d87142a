package bridge

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// This file translates messages of a modern server for a legacy client of a given revision. It
// keeps no state.

// resultForLegacy returns m, a modern server's result, translated for a legacy client that speaks
// the revision. request is the client's request.
func resultForLegacy(request, m *mcp.Message, revision string) (*mcp.Message, error) {
	edits := []mcp.Edit{mcp.Remove("/resultType"), mcp.Remove("/ttlMs"), mcp.Remove("/cacheScope")}
	edits = append(edits, mcp.RemoveReservedMeta(m)...)
	switch request.Method {
	case "tools/call":
		edits = append(edits, structuredContentForLegacy(m)...)
		edits = append(edits, contentForLegacy(m, "/content", revision)...)
	case "prompts/get":
		m.Items("/messages", func(i int, _ []byte) bool {
			edits = append(edits, contentForLegacy(m, "/messages/"+strconv.Itoa(i)+"/content",
				revision)...)
			return true
		})
	case "tools/list":
		m.Items("/tools", func(i int, raw []byte) bool {
			tool := mcp.NewResponse("", raw)
			_, hasSchema := tool.Get("/outputSchema")
			if hasSchema && !tool.TextEquals("/outputSchema/type", "object") {
				edits = append(edits, mcp.Remove("/tools/"+strconv.Itoa(i)+"/outputSchema"))
			}
			return true
		})
	}
	return m.Edit(edits...)
}

// structuredContentForLegacy returns the edits that remove structured content that is not an
// object. Legacy revisions do not allow such content. If the result has no other content, the edits
// add the structured content as a text.
func structuredContentForLegacy(m *mcp.Message) []mcp.Edit {
	raw, ok := m.Get("/structuredContent")
	if !ok || raw[0] == '{' {
		return nil
	}
	edits := []mcp.Edit{mcp.Remove("/structuredContent")}
	if m.Len("/content") < 1 {
		edits = append(edits, mcp.Set("/content", []byte("["+textBlock(string(raw))+"]")))
	}
	return edits
}

func textBlock(text string) string {
	return `{"type":"text","text":` + string(mcp.Quote(text)) + `}`
}

// contentForLegacy returns the edits that replace each content block of a type that the revision
// does not have. A text that names the block takes its place. pointer points to one block or to an
// array of blocks.
func contentForLegacy(m *mcp.Message, pointer, revision string) []mcp.Edit {
	if revision >= mcp.Rev20250618 {
		return nil // the revision has all types
	}
	var edits []mcp.Edit
	replace := func(at string, raw []byte) {
		block := mcp.NewResponse("", raw)
		switch {
		case block.TextEquals("/type", "resource_link"):
			uri, _ := block.Text("/uri")
			edits = append(edits, mcp.Set(at, []byte(textBlock("[resource: "+uri+"]"))))
		case block.TextEquals("/type", "audio") && revision < mcp.Rev20250326:
			mime, _ := block.Text("/mimeType")
			edits = append(edits, mcp.Set(at, []byte(textBlock("[audio: "+mime+"]"))))
		}
	}
	raw, _ := m.Get(pointer)
	switch {
	case bytes.HasPrefix(raw, []byte("{")):
		replace(pointer, raw)
	case bytes.HasPrefix(raw, []byte("[")):
		m.Items(pointer, func(i int, raw []byte) bool {
			if bytes.HasPrefix(raw, []byte("{")) {
				replace(pointer+"/"+strconv.Itoa(i), raw)
			}
			return true
		})
	}
	return edits
}

// errorForLegacy returns a modern server's error, translated for a legacy client.
func errorForLegacy(request, m *mcp.Message) (*mcp.Message, error) {
	switch code := m.ErrorCode(); {
	case code == mcp.CodeInvalidParams && request.Method == "resources/read":
		requested, _ := request.Text("/uri")
		if m.TextEquals("/data/uri", requested) {
			return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeResourceNotFound))))
		}
	case code == mcp.CodeHeaderMismatch || code == mcp.CodeUnsupportedVersion:
		// The error is about the parts that Gatekit added to the client's request.
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInternalError))))
	}
	return m, nil
}

// initializeResultForLegacy turns m, a modern server's answer to server/discover, into the answer
// to a legacy client's initialize.
func initializeResultForLegacy(id mcp.ID, m *mcp.Message, revision string) (*mcp.Message, error) {
	edits := []mcp.Edit{mcp.Set("/protocolVersion", mcp.Quote(revision)),
		mcp.Remove("/supportedVersions"), mcp.Remove("/resultType"), mcp.Remove("/ttlMs"),
		mcp.Remove("/cacheScope")}
	edits = append(edits, mcp.RemoveReservedMeta(m)...)
	if info, ok := m.Get(mcp.PointerServerInfo); ok {
		edits = append(edits, mcp.Set("/serverInfo", info))
	} else {
		edits = append(edits, mcp.Set("/serverInfo",
			[]byte(`{"name":"unknown","version":"unknown"}`)))
	}
	if _, ok := m.Get("/capabilities"); ok {
		edits = append(edits, mcp.Remove("/capabilities/extensions/io.modelcontextprotocol~1tasks"))
	} else {
		edits = append(edits, mcp.Set("/capabilities", []byte("{}")))
	}
	result, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return result.WithID(id), nil
}

// questionForLegacy returns q, a question of a modern server, translated for a legacy client that
// speaks the revision. If the revision cannot express the question, unsupported names the feature
// that the revision lacks.
func questionForLegacy(q *mcp.Message,
	revision string) (question *mcp.Message, unsupported string) {
	var edits []mcp.Edit
	switch url := q.TextEquals("/mode", "url"); {
	case q.Method == "elicitation/create" && url && revision < mcp.Rev20251125:
		return nil, "a page to be opened"
	case q.Method == "elicitation/create" && url:
		edits = append(edits, mcp.Set("/elicitationId", mcp.Quote("gatekit-"+rand.Text())))
	case q.Method == "elicitation/create" && revision < mcp.Rev20251125:
		edits, unsupported = formForLegacy(q)
	case q.Method == "sampling/createMessage" && revision < mcp.Rev20251125:
		edits, unsupported = messagesForLegacy(q, revision)
	}
	if unsupported != "" {
		return nil, unsupported
	}
	question, err := q.Edit(edits...)
	if err != nil {
		return nil, err.Error()
	}
	return question, ""
}

// formForLegacy returns the edits that translate a form for revisions before 2025-11-25. A choice
// among titled constants becomes an enum with names. unsupported names a feature of the form that
// cannot be translated.
func formForLegacy(q *mcp.Message) (edits []mcp.Edit, unsupported string) {
	const fields = "/requestedSchema/properties"
	q.Members(fields, func(name string, raw []byte) bool {
		at, field := fields+"/"+mcp.EscapePointer(name), mcp.NewResponse("", raw)
		if !bytes.HasPrefix(raw, []byte("{")) {
			return true
		}
		if field.TextEquals("/type", "array") {
			unsupported = "a choice of several values"
			return false
		}
		var values, titles []string
		field.Items("/oneOf", func(_ int, raw []byte) bool {
			option := mcp.NewResponse("", raw)
			value, ok := option.Get("/const")
			title, titled := option.Get("/title")
			if !titled {
				title = value
			}
			if ok {
				values, titles = append(values, string(value)), append(titles, string(title))
			}
			return true
		})
		if len(values) > 0 {
			edits = append(edits, mcp.Remove(at+"/oneOf"), mcp.Set(at+"/enum",
				[]byte("["+strings.Join(values, ",")+"]")), mcp.Set(at+"/enumNames",
				[]byte("["+strings.Join(titles, ",")+"]")))
		}
		return true
	})
	return edits, unsupported
}

// messagesForLegacy returns the edits that split a message with several content blocks into one
// message for each block. Revisions before 2025-11-25 allow only one block in a message.
// unsupported names a feature of the messages that cannot be translated.
func messagesForLegacy(q *mcp.Message,
	revision string) (edits []mcp.Edit, unsupported string) {
	if q.Len("/tools") > 0 {
		return nil, "a model that uses tools"
	}
	var messages [][]byte
	split := false
	q.Items("/messages", func(_ int, raw []byte) bool {
		if !bytes.HasPrefix(raw, []byte("{")) {
			messages = append(messages, raw)
			return true
		}
		m := mcp.NewResponse("", raw)
		blocks := [][]byte{}
		if m.Len("/content") < 0 {
			block, _ := m.Get("/content")
			blocks = append(blocks, block)
		} else {
			split = true
			m.Items("/content", func(_ int, block []byte) bool {
				blocks = append(blocks, block)
				return true
			})
		}
		for _, block := range blocks {
			if unsupported = unsupportedBlock(block, revision); unsupported != "" {
				return false
			}
			single, err := m.Edit(mcp.Set("/content", block))
			if err != nil {
				unsupported = err.Error()
				return false
			}
			messages = append(messages, single.Body())
		}
		return true
	})
	if split && unsupported == "" {
		edits = append(edits, mcp.Set("/messages", slices.Concat([]byte("["), bytes.Join(messages,
			[]byte(",")), []byte("]"))))
	}
	return edits, unsupported
}

// unsupportedBlock returns "" if the revision allows the content block raw in a message to a model.
// Otherwise it names the content that the revision does not allow. The revision is older than
// 2025-11-25.
func unsupportedBlock(raw []byte, revision string) string {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return "content that is not an object"
	}
	switch kind, _ := mcp.NewResponse("", raw).Text("/type"); {
	case kind == "text", kind == "image", kind == "audio" && revision >= mcp.Rev20250326:
		return ""
	default:
		return "content of type " + strconv.Quote(kind)
	}
}
