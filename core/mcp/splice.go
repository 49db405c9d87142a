package mcp

import "slices"

// splice replaces what is at span by text.
type splice struct {
	span
	text []byte
}

// spliced is m with splices of its body, which are in order and do not overlap. Every other byte is
// kept, and what the index holds is moved along; what it holds of a removed place is dropped. Where
// members are added to the body or its _meta, it is no longer right.
func (m *Message) spliced(splices []splice) *Message {
	if len(splices) == 0 {
		return m
	}
	size := len(m.raw)
	for _, s := range splices {
		size += len(s.text) - int(s.to-s.from)
	}
	c := *m
	c.digest = nil
	c.raw = make([]byte, 0, size)
	v := mover{splices: splices, grown: make([]int32, len(splices)+1)}
	done := int32(0)
	for i, s := range splices {
		c.raw = append(c.raw, m.raw[done:s.from]...)
		c.raw = append(c.raw, s.text...)
		done = s.to
		v.grown[i+1] = v.grown[i] + int32(len(s.text)) - (s.to - s.from)
	}
	c.raw = append(c.raw, m.raw[done:]...)

	c.idAt = v.span(m.idAt)
	c.body = v.span(m.body)
	c.top = v.members(m.top)
	c.meta = v.members(m.meta)
	return &c
}

// mover says where in the new bytes a place of the old ones is.
type mover struct {
	splices []splice
	grown   []int32 // by how much the first n splices make the bytes longer
}

// before is the number of splices that end at p or before it.
func (v mover) before(p int32) int {
	n, _ := slices.BinarySearchFunc(v.splices, p+1, func(s splice, p int32) int {
		return int(s.to - p)
	})
	return n
}

func (v mover) span(s span) span {
	return span{s.from + v.grown[v.before(s.from)], s.to + v.grown[v.before(s.to)]}
}

func (v mover) members(k kept) kept {
	out := make(kept, 0, len(k))
	for _, m := range k {
		if n := v.before(m.name.from); n < len(v.splices) && v.splices[n].from <= m.name.from {
			continue
		}
		m.name, m.value = v.span(m.name), v.span(m.value)
		out = append(out, m)
	}
	return out
}
