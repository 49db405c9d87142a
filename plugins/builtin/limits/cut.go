package limits

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

// cutter takes the items of a content in order, as long as there is room.
type cutter struct {
	form        form
	text, media int // bytes that there is room for
	left, total int // bytes that were left out, and all
}

// item is what is kept of an item: all, its text up to where the room ends, or nothing (nil).
func (c *cutter) item(raw []byte) []byte {
	block := mcp.NewNotification("", raw)
	at, quoted := first(block, c.form.text)
	_, data := first(block, c.form.media)
	text, media := decoded(quoted), max(len(data)-len(`""`), 0)
	frame := len(raw) - len(quoted) - len(data) // what else it says counts as text
	all := frame + len(text) + media
	c.total += all
	switch {
	case media > c.media || frame > c.text:
		c.left += all
		return nil
	case frame+len(text) <= c.text:
		c.text -= frame + len(text)
		c.media -= media
		return raw
	}
	n := boundary(text, c.text-frame)
	cut, err := block.Edit(mcp.Set(at, mcp.Quote(string(text[:n]))))
	if n == 0 || err != nil { // it cannot fail, and if it did there would be less, not more
		c.left += all
		return nil
	}
	c.text = 0
	c.media -= media
	c.left += len(text) - n
	return cut.Body()
}

// first is the first string at the pointers, with its quotes.
func first(m *mcp.Message, pointers []string) (at string, quoted []byte) {
	for _, at := range pointers {
		if raw, ok := m.Get(at); ok && raw[0] == '"' {
			return at, raw
		}
	}
	return "", nil
}

// decoded is a quoted string as text, with U+FFFD for what is none (a lone surrogate).
func decoded(quoted []byte) []byte {
	if len(quoted) == 0 || quoted[0] != '"' {
		return nil
	}
	// the error says that there is a U+FFFD in it now
	plain, _ := jsontext.AppendUnquote(nil, quoted)
	return plain
}

// boundary is the last place not after n where no character is cut in two.
func boundary(text []byte, n int) int {
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
