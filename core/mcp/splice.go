package mcp

import "slices"

// splice is a change of the bytes of a message: text replaces the bytes at span.
type splice struct {
	span
	text []byte
}

// withSplices returns a copy of m with the splices applied to its bytes. The splices must be in
// order and must not overlap. All other bytes are kept, and the index gets their new offsets.
// Members in replaced places are dropped from the index. Members that a splice adds to the body or
// its _meta are not in the index.
func (m *Message) withSplices(splices []splice) *Message {
	if len(splices) == 0 {
		return m
	}
	size := len(m.raw)
	for _, s := range splices {
		size += len(s.text) - int(s.to-s.from)
	}
	c := *m
	c.digest = nil
	if c.leaves != nil {
		c.leaves = &keptLeaves{}
	}
	c.raw = make([]byte, 0, size)
	v := offsetMap{splices: splices, growth: make([]int32, len(splices)+1)}
	done := int32(0)
	for i, s := range splices {
		c.raw = append(c.raw, m.raw[done:s.from]...)
		c.raw = append(c.raw, s.text...)
		done = s.to
		v.growth[i+1] = v.growth[i] + int32(len(s.text)) - (s.to - s.from)
	}
	c.raw = append(c.raw, m.raw[done:]...)

	c.idSpan = v.mapSpan(m.idSpan)
	c.bodySpan = v.mapSpan(m.bodySpan)
	c.bodyMembers = v.mapMembers(m.bodyMembers)
	c.metaMembers = v.mapMembers(m.metaMembers)
	return &c
}

// offsetMap maps offsets in the old bytes to offsets in the new ones.
type offsetMap struct {
	splices []splice
	growth  []int32 // growth[n] is the number of bytes that the first n splices add
}

// splicesBefore returns the number of splices that end at the offset p or before it.
func (v offsetMap) splicesBefore(p int32) int {
	n, _ := slices.BinarySearchFunc(v.splices, p+1, func(s splice, p int32) int {
		return int(s.to - p)
	})
	return n
}

func (v offsetMap) mapSpan(s span) span {
	return span{s.from + v.growth[v.splicesBefore(s.from)], s.to + v.growth[v.splicesBefore(s.to)]}
}

func (v offsetMap) mapMembers(k memberList) memberList {
	out := make(memberList, 0, len(k))
	for _, m := range k {
		if n := v.splicesBefore(m.name.from); n < len(v.splices) &&
			v.splices[n].from <= m.name.from {
			continue
		}
		m.name, m.value = v.mapSpan(m.name), v.mapSpan(m.value)
		out = append(out, m)
	}
	return out
}
