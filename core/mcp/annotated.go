package mcp

import "bytes"

// HeaderAnnotation is the member of a property's schema that names the header in which calls repeat
// the argument (protocol.md 3.12).
const HeaderAnnotation = "x-mcp-header"

// A hostile schema may nest without end, hang a million short names under a long one, or want more
// headers than a request can have. What is beyond these bounds is left out.
const (
	maxAnnotated      = 1000
	maxAnnotatedDepth = 16
	maxAnnotatedAt    = 512
)

// VisitHeaderAnnotations calls yield for each argument of a tool (raw, as Items has it in a list)
// that its inputSchema wants repeated in a header, with the name that it gives the header, whatever
// that is, and the argument's pointer in the params of a call. Only what properties lead to counts.
func VisitHeaderAnnotations(tool []byte, yield func(header, at string)) {
	if !bytes.Contains(tool, []byte(HeaderAnnotation)) {
		return
	}
	schema, ok := child(tool, span{0, int32(len(tool))}, "inputSchema")
	if ok {
		w := annotations{tool: tool, yield: yield, left: maxAnnotated}
		w.walk(schema, "/arguments", maxAnnotatedDepth)
	}
}

// annotations is the walk of Annotated. It goes down by places, not by pointers from the top: those
// would make it quadratic.
type annotations struct {
	tool  []byte
	yield func(header, at string)
	left  int
}

func (w *annotations) walk(schema span, at string, depth int) {
	properties, ok := child(w.tool, schema, "properties")
	if !ok || properties.first(w.tool) != '{' || depth == 0 {
		return
	}
	members(w.tool, int(properties.from), func(m member) bool {
		if !bytes.Contains(m.value.of(w.tool), []byte(HeaderAnnotation)) {
			return true
		}
		name := string(m.name.of(w.tool))
		if m.escaped {
			name, _ = unquote([]byte(name))
		}
		to := at + "/" + EscapePointer(name)
		if len(to) > maxAnnotatedAt {
			return true
		}
		if raw, ok := child(w.tool, m.value, HeaderAnnotation); ok {
			if header, ok := text(raw.of(w.tool)); ok {
				w.left--
				w.yield(header, to)
			}
		}
		if w.left > 0 {
			w.walk(m.value, to, depth-1)
		}
		return w.left > 0
	})
}
