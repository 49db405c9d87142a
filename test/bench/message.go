//go:build linux

package main

import "bytes"

// member returns the raw value of a member of the object obj, or an empty value if there is no such
// member. obj must be well formed: member does not validate it, so that client, relay and backend
// cost as little as possible.
func member(obj []byte, name string) []byte {
	start, end := memberRange(obj, name)
	return obj[start:end]
}

// memberRange returns the position of the value of a member of the object obj, or 0, 0 if there is
// no such member.
func memberRange(obj []byte, name string) (start, end int) {
	i := bytes.IndexByte(obj, '{') + 1
	for i < len(obj) {
		switch obj[i] {
		case ' ', '\t', '\r', '\n', ',':
			i++
			continue
		case '"':
		default:
			return 0, 0
		}
		keyEnd := stringEnd(obj, i)
		key := obj[i+1 : keyEnd-1]
		start = keyEnd
		for start < len(obj) && (obj[start] == ':' || obj[start] == ' ') {
			start++
		}
		end = valueEnd(obj, start)
		if string(key) == name {
			return start, end
		}
		i = end
	}
	return 0, 0
}

// stringEnd returns the index after the string that starts at i.
func stringEnd(b []byte, i int) int {
	for j := i + 1; ; {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return len(b)
		}
		j += n
		backslashes := 0
		for b[j-1-backslashes] == '\\' {
			backslashes++
		}
		j++
		if backslashes%2 == 0 {
			return j
		}
	}
}

// valueEnd returns the index after the value that starts at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // end of the enclosing object or array
			} else if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// withID appends the message raw to dst with another id. The message must have an id.
func withID(dst, raw []byte, id string) []byte {
	start, end := memberRange(raw, "id")
	dst = append(dst, raw[:start]...)
	dst = append(dst, id...)
	return append(dst, raw[end:]...)
}
