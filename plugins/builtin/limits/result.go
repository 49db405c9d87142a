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

// hold keeps an answer, or a task's result, within its size.
func (r *result) hold(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	// texts are no longer decoded than they are in JSON
	if m.Direction != mcp.ToClient || len(m.Body()) <= min(r.Bytes, r.Media) {
		return sdk.Allow(), nil
	}
	if m.Kind == mcp.Error {
		return r.holdError(m), nil
	}
	f, held := forms[m.Method]
	if !held || m.Kind != f.kind {
		return sdk.Allow(), nil
	}
	return r.holdContent(ctx, m, f)
}

// form is where a message has its content, and how a note is put into it.
type form struct {
	kind       mcp.Kind
	content    string // an array
	structured string // "" where there is none
	isError    string
	// pointers, within an item, of a text that can be cut: the first that is there
	text  []string
	media []string // and of what cannot
	note  func(m *mcp.Message, text []byte) []byte
}

// forms are those of the messages whose content reaches a model, by method.
var forms = func() map[string]form {
	tool := func(kind mcp.Kind, base string) form {
		return form{kind, base + "/content", base + "/structuredContent", base + "/isError",
			[]string{"/text", "/resource/text"}, []string{"/data", "/resource/blob"},
			func(_ *mcp.Message, text []byte) []byte { return textBlock(text) }}
	}
	return map[string]form{
		"tools/call":          tool(mcp.Response, ""),
		"tasks/result":        tool(mcp.Response, ""),
		"tasks/get":           tool(mcp.Response, "/result"),
		"notifications/tasks": tool(mcp.Notification, "/result"),
		"prompts/get": {mcp.Response, "/messages", "", "",
			[]string{"/content/text", "/content/resource/text"}, []string{"/content/data",
				"/content/resource/blob"},
			func(_ *mcp.Message, text []byte) []byte {
				return concat(`{"role":"user","content":`, textBlock(text), `}`)
			}},
		"resources/read": {mcp.Response, "/contents", "", "",
			[]string{"/text"}, []string{"/blob"},
			func(m *mcp.Message, text []byte) []byte {
				uri, ok := m.Get("/contents/0/uri")
				if !ok {
					uri = mcp.Quote(m.Name)
				}
				return concat(`{"uri":`, uri, `,"mimeType":"text/plain","text":`, text, `}`)
			}},
	}
}()

func textBlock(text []byte) []byte { return concat(`{"type":"text","text":`, text, `}`) }

func concat(before string, parts ...any) []byte {
	b := []byte(before)
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

// holdContent holds three parts to the limit, each for itself: the content, the structured content,
// and what is beside them.
func (r *result) holdContent(ctx context.Context, m *mcp.Message, f form) (sdk.Verdict, error) {
	content, odd := m.Get(f.content)
	if odd = odd && content[0] != '['; odd {
		content = nil // it cannot be cut, so it counts as what is beside the content
	}
	var structured []byte
	if f.structured != "" {
		structured, _ = m.Get(f.structured)
	}
	if beside := len(m.Body()) - len(content) - len(structured); beside > r.Bytes {
		return sdk.Deny(fmt.Sprintf("result: %s bytes beside the content, more than %s, cannot "+
			"be cut", grouped(beside), grouped(r.Bytes)),
			pipeline.Finding{Type: "result-size"}), nil
	}

	c := cutter{form: f, text: r.Bytes, media: r.Media}
	var kept []byte
	var findings []pipeline.Finding
	var err error
	m.Items(f.content, func(i int, raw []byte) bool {
		if i%1024 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
			return false
		}
		left := c.left
		item := c.item(raw)
		if c.left > left && len(findings) < maxFindings {
			findings = append(findings, pipeline.Finding{Type: "result-size",
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
	tooMuch := len(structured) > r.Bytes
	if tooMuch {
		c.left += len(structured)
		c.total += len(structured)
		findings = append(findings, pipeline.Finding{Type: "result-size", Pointer: f.structured})
	}
	switch {
	case c.left == 0:
		return sdk.Allow(), nil
	case r.Action != "cut" || odd:
		// a note would stand in the place of what was no list of anything
		return sdk.Deny(fmt.Sprintf("result: %s of %s bytes are too many", grouped(c.left),
			grouped(c.total)), findings...), nil
	}
	note := f.note(m, mcp.Quote(cutNote(c.left, c.total)))
	edits := []mcp.Edit{mcp.Set(f.content, concat("[", kept, note, "]"))}
	if tooMuch {
		edits = append(edits, mcp.Remove(f.structured), mcp.Set(f.isError, []byte("true")))
	}
	return sdk.Modify(fmt.Sprintf("result: %s of %s bytes left out", grouped(c.left),
		grouped(c.total)), edits, findings...), nil
}

const maxFindings = 64 // of one result

// holdError holds an error to the limit: its message is cut, its data taken out.
func (r *result) holdError(m *mcp.Message) sdk.Verdict {
	message, _ := m.Get("/message")
	data, _ := m.Get("/data")
	if beside := len(m.Body()) - len(message) - len(data); beside > r.Bytes {
		return sdk.Deny(fmt.Sprintf("result: an error with %s bytes beside its message and "+
			"data, more than %s, cannot be cut", grouped(beside), grouped(r.Bytes)),
			pipeline.Finding{Type: "result-size"})
	}
	plain := decoded(message)
	total, left := len(plain)+len(data), 0
	var findings []pipeline.Finding
	var edits []mcp.Edit
	if len(data) > r.Bytes {
		left += len(data)
		edits = append(edits, mcp.Remove("/data"))
		findings = append(findings, pipeline.Finding{Type: "result-size", Pointer: "/data"})
	}
	head := plain
	if len(plain) > r.Bytes {
		head = plain[:boundary(plain, r.Bytes)]
		left += len(plain) - len(head)
		findings = append(findings, pipeline.Finding{Type: "result-size", Pointer: "/message"})
	}
	switch {
	case left == 0:
		return sdk.Allow()
	case r.Action != "cut":
		return sdk.Deny(fmt.Sprintf("result: %s of an error's %s bytes are too many", grouped(left),
			grouped(total)), findings...)
	}
	edits = append(edits, mcp.Set("/message", mcp.Quote(string(head)+" "+cutNote(left, total))))
	return sdk.Modify(fmt.Sprintf("result: %s of an error's %s bytes left out", grouped(left),
		grouped(total)), edits, findings...)
}

// cutNote is what the model is told.
func cutNote(left, total int) string {
	return fmt.Sprintf("[cut by gatekit: %s of %s bytes left out]", grouped(left), grouped(total))
}

// grouped is n as people read it: 1,234,567.
func grouped(n int) string {
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
