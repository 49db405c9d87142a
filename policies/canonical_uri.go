package policies

import (
	"fmt"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/uris"
)

// canonicalMessage returns a copy of a message in which the URIs of resources have their canonical
// spelling. It returns nil if all URIs already have their canonical spelling. The copy is only for
// rules; Gatekit forwards the original message.
func canonicalMessage(m *mcp.Message) (*mcp.Message, error) {
	if !strings.HasPrefix(m.Method, "resources/") && !strings.HasPrefix(m.Method, "skills/") &&
		m.Method != "completion/complete" &&
		m.Method != "subscriptions/listen" && m.Method != "notifications/resources/updated" {
		return nil, nil
	}
	name, request := m.Name, m.Request
	if request != nil {
		c, err := canonicalMessage(request)
		if err != nil {
			return nil, err
		}
		if c != nil {
			request = c
		}
	}
	var edits []mcp.Edit
	edit := func(pointer, text string) {
		if c := uris.Canonical(text); c != text {
			edits = append(edits, mcp.Set(pointer, mcp.Quote(c)))
		}
	}
	meth, _ := mcp.LookupMethod(m.Method)
	isRequest := m.Kind == mcp.Request || m.Kind == mcp.Notification
	switch {
	case m.Method == "subscriptions/listen" && isRequest:
		m.Items("/notifications/resourceSubscriptions", func(i int, raw []byte) bool {
			if text, ok := mcp.NewResponse("", raw).Text(""); ok {
				edit(fmt.Sprintf("/notifications/resourceSubscriptions/%d", i), text)
			}
			return true
		})
	case m.Method == "completion/complete":
		pointer := ""
		if isRequest {
			pointer = "/ref/uri"
		}
		text, isURI := "", pointer != ""
		if isURI {
			text, isURI = m.Text(pointer)
		} else if m.Request != nil {
			_, isURI = m.Request.Text("/ref/uri")
		}
		// a template is not a URI: its braces would be escaped
		if !isURI || strings.Contains(m.Name, "{") {
			break
		}
		if pointer != "" {
			edit(pointer, text)
		}
		name = uris.Canonical(m.Name)
	case m.Kind == mcp.Response && meth.ItemsPointer != "":
		if meth.ItemNamePointer != "/uri" {
			break
		}
		m.Items(meth.ItemsPointer, func(i int, raw []byte) bool {
			if text, ok := mcp.NewResponse("", raw).Text("/uri"); ok {
				edit(fmt.Sprintf("%s/%d/uri", meth.ItemsPointer, i), text)
			}
			return true
		})
	default:
		if text, ok := m.Text("/uri"); ok && isRequest {
			edit("/uri", text)
		}
		name = uris.Canonical(m.Name)
	}
	if len(edits) == 0 && name == m.Name && request == m.Request {
		return nil, nil
	}
	c, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("bring the URIs to their canonical spelling: %w", err)
	}
	copied := *c // without edits, c is m itself
	copied.Name, copied.Request = name, request
	return &copied, nil
}
