package mcp

import "bytes"

// HeaderAnnotation is the name of a member of a property's schema. The value of this member names
// the HTTP header in which a call must repeat the argument (MCP 2026-07-28, Streamable HTTP
// transport).
const HeaderAnnotation = "x-mcp-header"

// A hostile schema may nest without end, put a million short names under a long one, or ask for
// more headers than a request can have. Annotations beyond these bounds are ignored.
const (
	maxAnnotations       = 1000 // headers of one tool
	maxAnnotationDepth   = 16   // nested properties
	maxAnnotationPointer = 512  // bytes of an argument's pointer
)

// VisitHeaderAnnotations calls yield for each argument that has an annotation in the tool's
// inputSchema. tool is the raw item of a list of tools. header is the name in the annotation, which
// is not checked. pointer locates the argument in the params of a call. The function finds the
// annotations of properties, and of properties nested in them. It does not find annotations in the
// schema of an array's items.
func VisitHeaderAnnotations(tool []byte, yield func(header, pointer string)) {
	if !bytes.Contains(tool, []byte(HeaderAnnotation)) {
		return
	}
	schema, ok := childSpan(tool, span{0, int32(len(tool))}, "inputSchema")
	if ok {
		w := annotationWalk{tool: tool, yield: yield, remaining: maxAnnotations}
		w.walk(schema, "/arguments", maxAnnotationDepth)
	}
}

// annotationWalk searches one schema. It walks down by spans. If it followed a pointer from the top
// each time, the search would take quadratic time.
type annotationWalk struct {
	tool      []byte
	yield     func(header, pointer string)
	remaining int
}

func (w *annotationWalk) walk(schema span, pointer string, depth int) {
	properties, ok := childSpan(w.tool, schema, "properties")
	if !ok || properties.firstByte(w.tool) != '{' || depth == 0 {
		return
	}
	eachMember(w.tool, int(properties.from), func(m member) bool {
		if !bytes.Contains(m.value.bytes(w.tool), []byte(HeaderAnnotation)) {
			return true
		}
		argument := pointer + "/" + EscapePointer(decodeLeniently(m.name.bytes(w.tool)))
		if len(argument) > maxAnnotationPointer {
			return true
		}
		if raw, ok := childSpan(w.tool, m.value, HeaderAnnotation); ok {
			if header, ok := decodeString(raw.bytes(w.tool)); ok {
				w.remaining--
				w.yield(header, argument)
			}
		}
		if w.remaining > 0 {
			w.walk(m.value, argument, depth-1)
		}
		return w.remaining > 0
	})
}
