package proxy

import "gatekit/core/mcp"

// member is one member of a JSON object: a raw value, or an array of raw values.
type member struct {
	name  string
	raw   []byte
	items [][]byte // the value when raw is nil
}

// object returns a JSON object of the members, in order. A list may be large, so object allocates
// one buffer of the final size.
func object(members ...member) []byte {
	size := 2
	for _, m := range members {
		size += len(m.name) + 6 + len(m.raw)
		for _, v := range m.items {
			size += len(v) + 1
		}
	}
	b := append(make([]byte, 0, size), '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, mcp.Quote(m.name)...)
		b = append(b, ':')
		if m.raw != nil {
			b = append(b, m.raw...)
			continue
		}
		b = append(b, '[')
		for i, v := range m.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, v...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func field(name string, raw []byte) member { return member{name: name, raw: raw} }
func textField(name, text string) member {
	return member{name: name, raw: mcp.Quote(text)}
}
func listField(name string, items [][]byte) member { return member{name: name, items: items} }
