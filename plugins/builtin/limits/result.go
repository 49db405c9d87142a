package limits

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// findingType is the type of all findings about the size of a result.
const findingType = "result-size"

// limitSize returns the verdict on a response, an error, or the result of a task.
func (r *result) limitSize(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	// A text is not longer than its JSON, so a short body has no part that exceeds a limit.
	if m.Direction != mcp.ToClient || len(m.Body()) <= min(r.Bytes, r.Media) {
		return sdk.Allow(), nil
	}
	if m.Kind == mcp.Error {
		return r.limitError(m), nil
	}
	f, ok := resultFormats[m.Method]
	if !ok || m.Kind != f.kind {
		return sdk.Allow(), nil
	}
	return r.limitContent(ctx, m, f)
}

// resultFormat describes where a message has its content, and how a note is added to the content.
// The pointers in text and media start at an item of the content, all others at the body.
type resultFormat struct {
	kind       mcp.Kind
	content    string   // pointer of an array of items
	structured string   // pointer of the structured content; "" if there is none
	isError    string   // pointer of the flag isError
	text       []string // pointers in an item; the first string that they find can be cut
	media      []string // pointers in an item; the first string that they find cannot be cut
	// note returns an item for the content of m. text is the item's text, as a JSON string.
	note func(m *mcp.Message, text []byte) []byte
}

// resultFormats are the messages whose content reaches a model, by method.
var resultFormats = func() map[string]resultFormat {
	toolResult := func(kind mcp.Kind, base string) resultFormat {
		return resultFormat{
			kind:       kind,
			content:    base + "/content",
			structured: base + "/structuredContent",
			isError:    base + "/isError",
			text:       []string{"/text", "/resource/text"},
			media:      []string{"/data", "/resource/blob"},
			note:       func(_ *mcp.Message, text []byte) []byte { return textBlock(text) },
		}
	}
	return map[string]resultFormat{
		"tools/call":          toolResult(mcp.Response, ""),
		"tasks/result":        toolResult(mcp.Response, ""),
		"tasks/get":           toolResult(mcp.Response, "/result"),
		"notifications/tasks": toolResult(mcp.Notification, "/result"),
		"prompts/get": {
			kind:    mcp.Response,
			content: "/messages",
			text:    []string{"/content/text", "/content/resource/text"},
			media:   []string{"/content/data", "/content/resource/blob"},
			note: func(_ *mcp.Message, text []byte) []byte {
				return concat(`{"role":"user","content":`, textBlock(text), `}`)
			},
		},
		"resources/read": {
			kind:    mcp.Response,
			content: "/contents",
			text:    []string{"/text"},
			media:   []string{"/blob"},
			note: func(m *mcp.Message, text []byte) []byte {
				uri, ok := m.Get("/contents/0/uri")
				if !ok {
					uri = mcp.Quote(m.Name)
				}
				return concat(`{"uri":`, uri, `,"mimeType":"text/plain","text":`, text, `}`)
			},
		},
	}
}()

// textBlock returns a text content block.
func textBlock(text []byte) []byte { return concat(`{"type":"text","text":`, text, `}`) }

// concat concatenates strings and byte slices.
func concat(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// limitContent applies the limit to three parts separately: the content, the structured content,
// and everything else in the body.
func (r *result) limitContent(ctx context.Context, m *mcp.Message,
	f resultFormat) (sdk.Verdict, error) {
	content, exists := m.Get(f.content)
	notArray := exists && content[0] != '['
	if notArray {
		content = nil // only an array can be cut, so the content counts as other bytes
	}
	var structured []byte
	if f.structured != "" {
		structured, _ = m.Get(f.structured)
	}
	if other := len(m.Body()) - len(content) - len(structured); other > r.Bytes {
		return sdk.Deny(fmt.Sprintf("result: %s bytes besides the content cannot be cut; the "+
			"limit is %s", withCommas(other), withCommas(r.Bytes)),
			pipeline.Finding{Type: findingType}), nil
	}

	c := cutter{format: f, textLeft: r.Bytes, mediaLeft: r.Media}
	var kept []byte
	var findings []pipeline.Finding
	var err error
	m.Items(f.content, func(i int, raw []byte) bool {
		if i%1024 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
			return false
		}
		removed := c.removed
		item := c.cut(raw)
		if c.removed > removed && len(findings) < maxFindings {
			findings = append(findings, pipeline.Finding{Type: findingType,
				Pointer: f.content + "/" + strconv.Itoa(i)})
		}
		if item != nil {
			kept = append(append(kept, item...), ',')
		}
		return true
	})
	if err != nil {
		return sdk.Verdict{}, fmt.Errorf("measure the result: %w", err)
	}
	removeStructured := len(structured) > r.Bytes
	if removeStructured {
		c.removed += len(structured)
		c.total += len(structured)
		findings = append(findings, pipeline.Finding{Type: findingType, Pointer: f.structured})
	}
	switch {
	case c.removed == 0:
		return sdk.Allow(), nil
	case r.Action != actionCut || notArray: // a note needs an array
		return sdk.Deny(fmt.Sprintf("result: %s of %s bytes exceed the limit",
			withCommas(c.removed), withCommas(c.total)), findings...), nil
	}
	note := f.note(m, mcp.Quote(cutNote(c.removed, c.total)))
	edits := []mcp.Edit{mcp.Set(f.content, concat("[", kept, note, "]"))}
	if removeStructured {
		edits = append(edits, mcp.Remove(f.structured), mcp.Set(f.isError, []byte("true")))
	}
	return sdk.Modify(fmt.Sprintf("result: %s of %s bytes left out", withCommas(c.removed),
		withCommas(c.total)), edits, findings...), nil
}

// maxFindings is how many items of one result get a finding.
const maxFindings = 64

// limitError returns the verdict on an error. A message that is too long is cut; data that is too
// long is removed.
func (r *result) limitError(m *mcp.Message) sdk.Verdict {
	message, _ := m.Get("/message")
	data, _ := m.Get("/data")
	if other := len(m.Body()) - len(message) - len(data); other > r.Bytes {
		return sdk.Deny(fmt.Sprintf("result: %s bytes of an error besides its message and data "+
			"cannot be cut; the limit is %s", withCommas(other), withCommas(r.Bytes)),
			pipeline.Finding{Type: findingType})
	}
	text := unquote(message)
	total, removed := len(text)+len(data), 0
	var findings []pipeline.Finding
	var edits []mcp.Edit
	if len(data) > r.Bytes {
		removed += len(data)
		edits = append(edits, mcp.Remove("/data"))
		findings = append(findings, pipeline.Finding{Type: findingType, Pointer: "/data"})
	}
	kept := text
	if len(text) > r.Bytes {
		kept = text[:runeBoundary(text, r.Bytes)]
		removed += len(text) - len(kept)
		findings = append(findings, pipeline.Finding{Type: findingType, Pointer: "/message"})
	}
	switch {
	case removed == 0:
		return sdk.Allow()
	case r.Action != actionCut:
		return sdk.Deny(fmt.Sprintf("result: %s of an error's %s bytes exceed the limit",
			withCommas(removed), withCommas(total)), findings...)
	}
	edits = append(edits, mcp.Set("/message",
		mcp.Quote(string(kept)+" "+cutNote(removed, total))))
	return sdk.Modify(fmt.Sprintf("result: %s of an error's %s bytes left out",
		withCommas(removed), withCommas(total)), edits, findings...)
}

// cutNote returns the note that tells the model how many bytes are missing.
func cutNote(removed, total int) string {
	return fmt.Sprintf("[cut by gatekit: %s of %s bytes left out]", withCommas(removed),
		withCommas(total))
}

// withCommas returns n with thousands separators, as in "1,234,567".
func withCommas(n int) string {
	s := strconv.Itoa(n)
	var b strings.Builder
	for i, digit := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
