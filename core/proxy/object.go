package proxy

import "gatekit/core/mcp"

// member is one member of a JSON object, its value raw.
type member struct {
	name string
	raw  []byte
}

// object is a JSON object of members in turn.
func object(members ...member) []byte {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, mcp.Quote(m.name)...)
		b = append(b, ':')
		b = append(b, m.raw...)
	}
	return append(b, '}')
}

// array is a JSON array of raw values.
func array(values [][]byte) []byte {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
