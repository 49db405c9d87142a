package upstream

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// What a modern server says, in the words of a legacy client (protocol.md 3). Nothing here keeps
// anything.

// reserved is how the specification's own keys in _meta begin.
const reserved = "io.modelcontextprotocol/"

// unreserved removes the specification's own keys, and those in more, from the _meta of what is no
// client's request. A _meta that holds nothing else goes with them.
func unreserved(m *mcp.Message, more ...string) (removes []mcp.Edit) {
	all := true
	m.Members("/_meta", func(name string, _ []byte) bool {
		if strings.HasPrefix(name, reserved) || slices.Contains(more, name) {
			removes = append(removes, mcp.Remove("/_meta/"+mcp.EscapePointer(name)))
		} else {
			all = false
		}
		return true
	})
	if all && len(removes) > 0 {
		return []mcp.Edit{mcp.Remove("/_meta")}
	}
	return removes
}

// resultForLegacy is a modern server's result as a legacy client of a revision is to get it.
// request is the client's.
func resultForLegacy(request, m *mcp.Message, revision string) (*mcp.Message, error) {
	edits := []mcp.Edit{mcp.Remove("/resultType"), mcp.Remove("/ttlMs"), mcp.Remove("/cacheScope")}
	edits = append(edits, unreserved(m)...)
	switch request.Method {
	case "tools/call":
		edits = append(edits, legacyStructured(m)...)
		edits = append(edits, olderBlocks(m, "/content", revision)...)
	case "prompts/get":
		m.Items("/messages", func(i int, _ []byte) bool {
			edits = append(edits, olderBlocks(m, "/messages/"+strconv.Itoa(i)+"/content",
				revision)...)
			return true
		})
	case "tools/list":
		m.Items("/tools", func(i int, raw []byte) bool {
			tool := mcp.NewResponse("", raw)
			if _, ok := tool.Get("/outputSchema"); ok && !tool.TextEquals("/outputSchema/type",
				"object") {
				edits = append(edits, mcp.Remove("/tools/"+strconv.Itoa(i)+"/outputSchema"))
			}
			return true
		})
	}
	return m.Edit(edits...)
}

// legacyStructured removes structured content that is no object, which legacy revisions do not
// know, and leaves a text in its place where there is none.
func legacyStructured(m *mcp.Message) []mcp.Edit {
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

// olderBlocks replaces the content blocks at pointer, one or an array, that the revision does not
// know, by texts that say what stood there.
func olderBlocks(m *mcp.Message, pointer, revision string) []mcp.Edit {
	if revision >= mcp.Rev20250618 {
		return nil // all types are known
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

// errorForLegacy is a modern server's error as a legacy client is to get it (protocol.md 3.10).
func errorForLegacy(request, m *mcp.Message) (*mcp.Message, error) {
	switch code := m.ErrorCode(); {
	case code == mcp.CodeInvalidParams && request.Method == "resources/read":
		asked, _ := request.Text("/uri")
		if m.TextEquals("/data/uri", asked) {
			return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeNotFound))))
		}
	case code == mcp.CodeHeaderMismatch || code == mcp.CodeUnsupportedVersion: // about this hop
		return m.Edit(mcp.Set("/code", []byte(strconv.Itoa(mcp.CodeInternal))))
	}
	return m, nil
}

// helloForLegacy is what a modern server answered to server/discover as the result of a legacy
// client's initialize.
func helloForLegacy(id mcp.ID, m *mcp.Message, revision string) (*mcp.Message, error) {
	edits := []mcp.Edit{mcp.Set("/protocolVersion", mcp.Quote(revision)),
		mcp.Remove("/supportedVersions"), mcp.Remove("/resultType"), mcp.Remove("/ttlMs"),
		mcp.Remove("/cacheScope")}
	edits = append(edits, unreserved(m)...)
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
	hello, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return hello.WithID(id), nil
}

// questionForLegacy is a question of a modern server as a legacy client of a revision is to get it,
// or why it cannot be asked.
func questionForLegacy(q *mcp.Message, revision string) (older *mcp.Message, why string) {
	var edits []mcp.Edit
	switch url := q.TextEquals("/mode", "url"); {
	case q.Method == "elicitation/create" && url && revision < mcp.Rev20251125:
		return nil, "a page to be opened"
	case q.Method == "elicitation/create" && url:
		edits = append(edits, mcp.Set("/elicitationId", mcp.Quote("gatekit-"+rand.Text())))
	case q.Method == "elicitation/create" && revision < mcp.Rev20251125:
		edits, why = olderForm(q)
	case q.Method == "sampling/createMessage" && revision < mcp.Rev20251125:
		edits, why = olderMessages(q, revision)
	}
	if why != "" {
		return nil, why
	}
	older, err := q.Edit(edits...)
	if err != nil {
		return nil, err.Error()
	}
	return older, ""
}

// olderForm puts the fields of a form that 2025-06-18 does not know into its words: a choice among
// titled constants is an enum with names.
func olderForm(q *mcp.Message) (edits []mcp.Edit, why string) {
	const fields = "/requestedSchema/properties"
	q.Members(fields, func(name string, raw []byte) bool {
		at, field := fields+"/"+mcp.EscapePointer(name), mcp.NewResponse("", raw)
		if !bytes.HasPrefix(raw, []byte("{")) {
			return true
		}
		if field.TextEquals("/type", "array") {
			why = "a choice of several values"
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
	return edits, why
}

// olderMessages makes a message of each content block, where a message has several: revisions
// before 2025-11-25 have one in each.
func olderMessages(q *mcp.Message, revision string) (edits []mcp.Edit, why string) {
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
			if why = olderBlock(block, revision); why != "" {
				return false
			}
			one, err := m.Edit(mcp.Set("/content", block))
			if err != nil {
				why = err.Error()
				return false
			}
			messages = append(messages, one.Body())
		}
		return true
	})
	if split && why == "" {
		edits = append(edits, mcp.Set("/messages", slices.Concat([]byte("["), bytes.Join(messages,
			[]byte(",")), []byte("]"))))
	}
	return edits, why
}

// olderBlock says why a content block cannot be put to a model by a client of a revision before
// 2025-11-25; "" when it can.
func olderBlock(raw []byte, revision string) string {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return "content that is no block"
	}
	switch kind, _ := mcp.NewResponse("", raw).Text("/type"); {
	case kind == "text", kind == "image", kind == "audio" && revision >= mcp.Rev20250326:
		return ""
	default:
		return "content of type " + strconv.Quote(kind)
	}
}
