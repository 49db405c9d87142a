package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// This file makes sure that a skill which a stage hides in skills/list or denies in skills/get
// cannot be used in any other way. It also checks the files of skills against the digests in the
// entries that the client was shown.

// denyOwn denies m, a request or an answer, for a reason of Gatekit's own, whatever the stages
// decide. It inspects m, records the denial and returns the error for the client.
func (call *Call) denyOwn(ctx context.Context, m *mcp.Message, reason string) error {
	call.noteInspected()
	if err := call.settings.Pipeline.Consume(context.WithoutCancel(ctx), m, "deny",
		reason); err != nil {
		return err // a stage's denial, recorded
	}
	return requestErrorf(mcp.CodeDenied, "refused: %s", reason)
}

// denyIfHiddenSkill returns an error if the request is about a skill that a stage hid from the
// client, or about a file or directory of such a skill.
func (call *Call) denyIfHiddenSkill(ctx context.Context, m *mcp.Message) error {
	switch m.Method {
	case "skills/get", "resources/read", "resources/directory/read", "resources/subscribe":
	default:
		return nil
	}
	uri := m.Name
	if uri == "" {
		uri, _ = m.Text("/uri")
	}
	if !call.session.skills.isHidden(m.Server, uri) {
		return nil
	}
	return call.denyOwn(ctx, m, "the skill is hidden from this client")
}

// passAnswer checks a server's answer, and passes it through the pipeline. It remembers the skills
// that the answer shows, and the skills that a stage hid.
func (call *Call) passAnswer(ctx context.Context, m *mcp.Message) (pipeline.Passed, error) {
	if m.Kind != mcp.Response {
		return call.settings.Pipeline.Pass(ctx, m)
	}
	switch m.Method {
	case "resources/read":
		if reason := call.session.skills.fault(m); reason != "" {
			return pipeline.Passed{}, call.denyOwn(ctx, m, reason)
		}
	case "resources/directory/read":
		if n := m.Len("/resources"); n > call.settings.Limits.ListItems {
			return pipeline.Passed{}, call.denyOwn(ctx, m, fmt.Sprintf("the directory has more "+
				"than %d items in one page ([limits] list_items)", call.settings.Limits.ListItems))
		}
	case "skills/get":
		if uri, ok := m.Text("/skill/uri"); !ok || uri != m.Name {
			return pipeline.Passed{}, call.denyOwn(ctx, m,
				"the server answered with another skill than the client asked for")
		}
	}
	passed, err := call.settings.Pipeline.Pass(ctx, m)
	if noteErr := call.noteSkills(m, passed, err); noteErr != nil && err == nil {
		return pipeline.Passed{}, &UnavailableError{Server: m.Server, Reason: noteErr.Error()}
	}
	return passed, err
}

// directoryCursor is the cursor of the next page of a directory, with the number of pages and items
// before that page.
type directoryCursor struct {
	Cursor string `json:"c"` // the server's own cursor
	Pages  int    `json:"p"`
	Items  int    `json:"i"`
}

// openDirectoryCursor replaces Gatekit's cursor by the server's cursor, in a request for a page of
// a directory. If names have no prefixes, clients get the server's own cursors, and nothing is
// replaced.
func (call *Call) openDirectoryCursor(m *mcp.Message) (*mcp.Message, directoryCursor, error) {
	var c directoryCursor
	raw, paged := m.Get("/cursor")
	if m.Method != "resources/directory/read" || !paged || call.settings.names.disabled {
		return m, c, nil
	}
	token, _ := m.Text("/cursor")
	if call.session.proxy.seal.open(token, &c, "directory", m.Principal.ID(), m.Server,
		m.Name) != nil {
		return nil, c, requestErrorf(mcp.CodeInvalidParams,
			"invalid cursor %.100s: ask again without a cursor", raw)
	}
	next, err := m.Edit(mcp.Set("/cursor", mcp.Quote(c.Cursor)))
	return next, c, err
}

// sealDirectoryCursor replaces the server's cursor by Gatekit's cursor, in a page of a directory.
// It refuses a page that exceeds the limits of a list.
func (call *Call) sealDirectoryCursor(answer pipeline.Passed,
	before directoryCursor) (pipeline.Passed, error) {
	m := answer.Message()
	if m == nil || m.Method != "resources/directory/read" || m.Kind != mcp.Response ||
		call.settings.names.disabled {
		return answer, nil
	}
	limits := call.settings.Limits
	unavailable := func(reason string, args ...any) (pipeline.Passed, error) {
		return pipeline.Passed{}, &UnavailableError{Server: m.Server,
			Reason: fmt.Sprintf(reason, args...)}
	}
	next := directoryCursor{Pages: before.Pages + 1, Items: before.Items + max(m.Len("/resources"),
		0)}
	if next.Items > limits.ListItems {
		return unavailable("the directory has more than %d items ([limits] list_items)",
			limits.ListItems)
	}
	raw, more := m.Get("/nextCursor")
	if !more || string(raw) == "null" {
		return answer, nil
	}
	var ok bool
	switch next.Cursor, ok = m.Text("/nextCursor"); {
	case !ok:
		return unavailable("its nextCursor is no string")
	case next.Pages >= limits.ListPages:
		return unavailable("the directory has more than %d pages ([limits] list_pages)", next.Pages)
	}
	token, err := call.session.proxy.seal.seal(next, "directory", m.Principal.ID(), m.Server,
		m.Name)
	if err != nil {
		return pipeline.Passed{}, fmt.Errorf("make a cursor: %w", err)
	}
	return answer.Edit(mcp.Set("/nextCursor", mcp.Quote(token)))
}

// noteSkills remembers the entries of skills in a server's answer. sent is the answer as the server
// sent it, and passed is the answer after inspection. If the stages denied the answer, err is the
// denial. noteSkills returns an error if an entry cannot be remembered.
func (call *Call) noteSkills(sent *mcp.Message, passed pipeline.Passed, err error) error {
	skills := &call.session.skills
	switch sent.Method {
	case "skills/get":
		shown := sent
		if err == nil {
			shown = passed.Message()
		}
		raw, ok := shown.Get("/skill")
		if !ok {
			return nil
		}
		return skills.note(sent.Server, raw, err != nil)
	case "skills/list":
		if err != nil {
			return nil
		}
	default:
		return nil
	}
	shown := map[string]bool{}
	var noteErr error
	passed.Message().Items("/skills", func(_ int, raw []byte) bool {
		uri, _ := mcp.NewResponse("", raw).Text("/uri")
		shown[uri] = true
		noteErr = skills.note(sent.Server, raw, false)
		return noteErr == nil
	})
	sent.Items("/skills", func(_ int, raw []byte) bool {
		if uri, _ := mcp.NewResponse("", raw).Text("/uri"); noteErr == nil && !shown[uri] {
			noteErr = skills.note(sent.Server, raw, true)
		}
		return noteErr == nil
	})
	return noteErr
}

// fault returns the reason why the contents in m, the result of a resources/read, do not match the
// entries of skills that the client was shown. It returns "" if the contents match.
func (t *skillTable) fault(m *mcp.Message) string {
	requested := t.file(m.Server, m.Name)
	if len(requested) > 0 && m.Len("/contents") != 1 {
		return "the file of a skill must have exactly one content"
	}
	reason := ""
	m.Items("/contents", func(_ int, raw []byte) bool {
		content := mcp.NewResponse("", raw)
		listed := [][]skillFile{requested}
		if uri, ok := content.Text("/uri"); ok && uri != m.Name {
			listed = append(listed, t.file(m.Server, uri))
		}
		for _, files := range listed {
			if reason == "" && len(files) > 0 {
				reason = contentFault(content, files)
			}
		}
		return reason == ""
	})
	return reason
}

// contentFault returns the reason why a content matches none of the entries for its file. It
// returns "" if the content matches at least one entry.
func contentFault(content *mcp.Message, files []skillFile) string {
	size, digest, err := contentDigest(content)
	if err != nil {
		return "the file of a skill cannot be checked: " + err.Error()
	}
	for _, f := range files {
		if f.valid && f.size == size && f.digest == digest {
			return ""
		}
	}
	return "the file of a skill does not match the digest and size in the skill's entry: " +
		"request skills/get to see whether the skill has changed"
}

// contentDigest returns the size and the digest of the bytes of a content.
func contentDigest(content *mcp.Message) (size int64, digest [sha256.Size]byte, err error) {
	text, isText := content.Text("/text")
	blob, isBlob := content.Text("/blob")
	sum := sha256.New()
	switch {
	case isText == isBlob:
		return 0, digest, errors.New("it needs either a text or a blob")
	case isText:
		size = int64(len(text))
		io.WriteString(sum, text)
	default:
		if size, err = decodeInto(sum, blob); err != nil {
			return 0, digest, errors.New("its blob is no base64")
		}
	}
	sum.Sum(digest[:0])
	return size, digest, nil
}

// decodeInto writes the decoded bytes of a base64 text into sum, without a buffer for the whole
// text. It returns the number of bytes.
func decodeInto(sum hash.Hash, blob string) (int64, error) {
	return io.Copy(sum, base64.NewDecoder(base64.StdEncoding.Strict(), strings.NewReader(blob)))
}
