package mcp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions of this file traverse valid JSON. If the bytes are not valid JSON, the functions do
// not panic, but their results have no meaning.

// skipBlanks returns the offset of the first byte at i or after it that is not white space.
func skipBlanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the offset after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		i = nextQuote(b, i)
		if i >= len(b) {
			return len(b)
		}
		isEscaped := false
		for before := i - 1; b[before] == '\\'; before-- {
			isEscaped = !isEscaped
		}
		if !isEscaped {
			return i + 1
		}
	}
}

// nextQuote returns the offset of the first quote at i or after it. It examines up to 32 bytes
// itself, since most strings are short, and then calls IndexByte.
func nextQuote(b []byte, i int) int {
	for range 4 {
		if i+8 > len(b) {
			break
		}
		q := binary.LittleEndian.Uint64(b[i:]) ^ quotes
		if hit := (q - lowBits) &^ q & highBits; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
		i += 8
	}
	if n := bytes.IndexByte(b[i:], '"'); n >= 0 {
		return i + n
	}
	return len(b)
}

// skipValue returns the offset after the value that begins at i.
func skipValue(b []byte, i int) int {
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

// eachMember calls yield for each member of the object that begins at i, until yield returns false.
// It returns the offset after the last member that it read, or after the whole object.
func eachMember(b []byte, i int, yield func(member) bool) (end int) {
	for i = skipBlanks(b, i+1); i < len(b) && b[i] == '"'; {
		var m member
		m, i = readMember(b, i)
		if !yield(m) {
			return i
		}
		if i = skipBlanks(b, i); i >= len(b) || b[i] != ',' {
			break
		}
		i = skipBlanks(b, i+1)
	}
	return min(i+1, len(b)) // the brace
}

// readMember reads the member whose name begins at i, and returns the member and the offset after
// the member.
func readMember(b []byte, i int) (member, int) {
	end := skipString(b, i)
	m := member{name: span{int32(i + 1), int32(max(end-1, i+1))}}
	m.escaped = bytes.IndexByte(m.name.bytes(b), '\\') >= 0
	i = skipBlanks(b, end)
	i = min(i+1, len(b)) // the colon
	i = skipBlanks(b, i)
	end = skipValue(b, i)
	m.value = span{int32(i), int32(end)}
	return m, end
}

// eachItem calls yield for each element of the array that begins at i, until yield returns false.
func eachItem(b []byte, i int, yield func(span) bool) {
	eachItemAt(b, i, func(i int) (int, bool) {
		end := skipValue(b, i)
		return end, yield(span{int32(i), int32(end)})
	})
}

// eachItemAt calls yield with the offset of each element of the array that begins at i, until yield
// returns false. The other result of yield is the offset after the element.
func eachItemAt(b []byte, i int, yield func(i int) (end int, ok bool)) {
	for i = skipBlanks(b, i+1); i < len(b) && b[i] != ']'; {
		end, ok := yield(i)
		if !ok {
			return
		}
		if i = skipBlanks(b, end); i >= len(b) || b[i] != ',' {
			return
		}
		i = skipBlanks(b, i+1)
	}
}

// indexBody returns the index of the body of raw. For a large body, the index is empty, since
// reading the whole body again takes more time than the index saves.
func indexBody(raw []byte, body span) (x index) {
	if body.firstByte(raw) != '{' || body.to-body.from > 64<<10 {
		return x
	}
	eachMember(raw, int(body.from), func(m member) bool {
		x.bodyMembers = append(x.bodyMembers, m)
		if m.hasName(raw, "_meta") && m.value.firstByte(raw) == '{' {
			eachMember(raw, int(m.value.from), func(m member) bool {
				x.metaMembers = append(x.metaMembers, m)
				return len(x.metaMembers) < maxIndexed
			})
		}
		return len(x.bodyMembers) < maxIndexed
	})
	return x
}

// eachBodyMember calls yield for each member of the body, which is an object.
func (m *Message) eachBodyMember(yield func(member) bool) {
	if !m.bodyMembers.isComplete() {
		eachMember(m.raw, int(m.bodySpan.from), yield)
		return
	}
	for _, x := range m.bodyMembers {
		if !yield(x) {
			return
		}
	}
}

// hasName reports whether the member has the given name, with U+FFFD for each lone surrogate.
func (m member) hasName(b []byte, name string) bool {
	raw := m.name.bytes(b)
	if !m.escaped {
		return string(raw) == name
	}
	return decodeLeniently(raw) == name
}
