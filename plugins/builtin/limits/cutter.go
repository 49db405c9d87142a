package limits

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

// cutter cuts the content of a result to its limits. It takes the items in order, and keeps text
// and media until a limit is used up.
type cutter struct {
	format         resultFormat
	textLeft       int // bytes of text that may still be kept
	mediaLeft      int // bytes of media that may still be kept
	removed, total int // bytes that were removed, and all bytes
}

// cut returns the item unchanged, the item with its text cut, or nil if the item is removed.
func (c *cutter) cut(raw []byte) []byte {
	item := mcp.NewNotification("", raw)
	textPointer, quoted := firstString(item, c.format.text)
	_, quotedMedia := firstString(item, c.format.media)
	text, media := unquote(quoted), max(len(quotedMedia)-len(`""`), 0)
	rest := len(raw) - len(quoted) - len(quotedMedia) // everything else in the item counts as text
	size := rest + len(text) + media
	c.total += size
	switch {
	case media > c.mediaLeft || rest > c.textLeft:
		c.removed += size
		return nil
	case rest+len(text) <= c.textLeft:
		c.textLeft -= rest + len(text)
		c.mediaLeft -= media
		return raw
	}
	n := runeBoundary(text, c.textLeft-rest)
	edited, err := item.Edit(mcp.Set(textPointer, mcp.Quote(string(text[:n]))))
	if n == 0 || err != nil { // no error is possible here, and removing the item is safe
		c.removed += size
		return nil
	}
	c.textLeft = 0
	c.mediaLeft -= media
	c.removed += len(text) - n
	return edited.Body()
}

// firstString returns the first pointer that leads to a string in m, and the string with its
// quotes. It returns "" and nil if no pointer leads to a string.
func firstString(m *mcp.Message, pointers []string) (pointer string, quoted []byte) {
	for _, pointer := range pointers {
		if raw, ok := m.Get(pointer); ok && raw[0] == '"' {
			return pointer, raw
		}
	}
	return "", nil
}

// unquote returns the text of a JSON string, with U+FFFD for a lone surrogate. It returns nil if
// quoted is not a string.
func unquote(quoted []byte) []byte {
	if len(quoted) == 0 || quoted[0] != '"' {
		return nil
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // an error means that U+FFFD was inserted
	return text
}

// runeBoundary returns the last index up to n that does not split a character of text.
func runeBoundary(text []byte, n int) int {
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
