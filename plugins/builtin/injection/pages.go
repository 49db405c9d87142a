package injection

import (
	"bytes"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// appPages returns the pointers of the texts in m that are pages of MCP Apps: HTML whose URI begins
// with "ui://". A client shows such a page in a frame. Its scripts and styles are not prose, so
// findings in it are only recorded. appPages returns nil if there are none.
func appPages(m *mcp.Message) map[string]bool {
	if m.Kind != mcp.Response || !mayHoldPages(m.Body()) {
		return nil
	}
	pages := make(map[string]bool)
	find := func(items, resource string) {
		m.Items(items, func(i int, raw []byte) bool {
			item := mcp.NewNotification("", raw)
			uri, _ := item.Text(resource + "/uri")
			kind, _ := item.Text(resource + "/mimeType")
			if strings.HasPrefix(uri, "ui://") && strings.HasPrefix(kind, "text/html") {
				pages[items+"/"+strconv.Itoa(i)+resource+"/text"] = true
			}
			return true
		})
	}
	switch m.Method {
	case "resources/read":
		find("/contents", "")
	case "tools/call":
		find("/content", "/resource")
	}
	if len(pages) == 0 {
		return nil
	}
	return pages
}

// mayHoldPages reports whether a page can be in the body. A JSON text may write any character of
// "ui://" as an escape, such as \/, so a body with escapes may hold one if it names an HTML type.
func mayHoldPages(body []byte) bool {
	return bytes.Contains(body, []byte("ui://")) ||
		bytes.IndexByte(body, '\\') >= 0 && bytes.Contains(body, []byte("mimeType"))
}
