package mcp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions here go over JSON that was validated before. They stay within their bytes whatever
// those are, but promise sense for valid JSON only.

func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString answers where the string ends that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		i = nextQuote(b, i)
		if i >= len(b) {
			return len(b)
		}
		slants := i - 1
		for b[slants] == '\\' {
			slants--
		}
		if (i-slants)%2 == 1 {
			return i + 1
		}
	}
}

// nextQuote is where the next quote is, at i or after it. Most strings are short: IndexByte is for
// the others.
func nextQuote(b []byte, i int) int {
	for range 4 {
		if i+8 > len(b) {
			break
		}
		q := binary.LittleEndian.Uint64(b[i:]) ^ quotes
		if hit := (q - ones) &^ q & highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
		i += 8
	}
	if n := bytes.IndexByte(b[i:], '"'); n >= 0 {
		return i + n
	}
	return len(b)
}

// skip answers where the value ends that begins at i.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		open := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				open++
			case '}', ']':
				if open--; open == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	}
	for i < len(b) {
		switch b[i] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return i
		}
		i++
	}
	return i
}

// members calls yield for each member of the object that begins at i, until it answers false.
func members(b []byte, i int, yield func(member) bool) {
	for i = blank(b, i+1); i < len(b) && b[i] == '"'; {
		var m member
		m, i = nextMember(b, i)
		if !yield(m) {
			return
		}
		if i = blank(b, i); i >= len(b) || b[i] != ',' {
			return
		}
		i = blank(b, i+1)
	}
}

// nextMember reads the member whose name begins at i and answers where it ends.
func nextMember(b []byte, i int) (member, int) {
	end := skipString(b, i)
	m := member{name: span{int32(i + 1), int32(max(end-1, i+1))}}
	m.escaped = bytes.IndexByte(m.name.of(b), '\\') >= 0
	i = blank(b, end)
	i = min(i+1, len(b)) // the colon
	i = blank(b, i)
	end = skip(b, i)
	m.value = span{int32(i), int32(end)}
	return m, end
}

// items calls yield for each element of the array that begins at i, until it answers false.
func items(b []byte, i int, yield func(span) bool) {
	i = blank(b, i+1)
	if i < len(b) && b[i] == ']' {
		return
	}
	for i < len(b) {
		end := skip(b, i)
		if !yield(span{int32(i), int32(end)}) {
			return
		}
		if i = blank(b, end); i >= len(b) || b[i] != ',' {
			return
		}
		i = blank(b, i+1)
	}
}

// indexed is the index of the body of raw. A large body has none: reading all of it once more costs
// more than the index saves.
func indexed(raw []byte, body span) (x index) {
	if body.first(raw) != '{' || body.to-body.from > 64<<10 {
		return x
	}
	members(raw, int(body.from), func(m member) bool {
		x.top = append(x.top, m)
		if m.is(raw, "_meta") && m.value.first(raw) == '{' {
			members(raw, int(m.value.from), func(m member) bool {
				x.meta = append(x.meta, m)
				return len(x.meta) < maxKept
			})
		}
		return len(x.top) < maxKept
	})
	return x
}

// members calls yield for each member of the body, which is an object.
func (m *Message) members(yield func(member) bool) {
	if !m.top.complete() {
		members(m.raw, int(m.body.from), yield)
		return
	}
	for _, x := range m.top {
		if !yield(x) {
			return
		}
	}
}

// is says whether the member goes by the name.
func (m member) is(b []byte, name string) bool {
	raw := m.name.of(b)
	if !m.escaped {
		return string(raw) == name
	}
	plain, ok := unquote(raw)
	return ok && plain == name
}
