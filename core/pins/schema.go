package pins

import (
	"bytes"
	"slices"
)

// place is the meaning of a place in a definition.
type place uint8

const (
	placeItem        place = iota // the definition itself
	placeSchema                   // a JSON Schema
	placeSchemas                  // an object or array whose values are JSON Schemas
	placeNameSets                 // an object whose values are sets of names
	placeSet                      // an array whose order has no meaning
	placeData                     // a value that MCP does not define
	placeShape                    // a value that only programs read
	placeArguments                // the arguments of a prompt
	placeArgument                 // one argument of a prompt
	placeAnnotations              // the annotations of a tool
	placeText                     // a text that a model or a user reads
	placeDecoration               // what is told and never held back
)

// child returns the meaning of a member of an object, or of an element of an array (name is "").
func (p place) child(kind Kind, name string) place {
	switch p {
	case placeItem:
		return itemMember(kind, name)
	case placeSchema:
		return schemaMember(name)
	case placeSchemas:
		return placeSchema
	case placeNameSets:
		return placeSet
	case placeArguments:
		return placeArgument
	case placeArgument, placeAnnotations:
		switch name {
		case "title", "description":
			return placeText
		case "name", "required":
			return placeShape
		}
		return placeData
	case placeDecoration, placeText, placeShape:
		return p
	}
	return placeData
}

func itemMember(kind Kind, name string) place {
	switch name {
	case "title", "description":
		return placeText
	case "icons", "_meta", "execution":
		return placeDecoration
	case "inputSchema", "outputSchema":
		if kind == Tool {
			return placeSchema
		}
	case "annotations":
		if kind == Tool {
			return placeAnnotations
		}
		return placeDecoration // audience, priority, lastModified
	case "arguments":
		if kind == Prompt {
			return placeArguments
		}
	case "size":
		return placeDecoration
	case "name", "uri", "uriTemplate", "mimeType":
		return placeShape
	}
	return placeData
}

func schemaMember(name string) place {
	switch name {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "allOf",
		"anyOf", "oneOf", "prefixItems":
		return placeSchemas
	case "items", "additionalItems", "additionalProperties", "unevaluatedItems",
		"unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else",
		"contentSchema":
		return placeSchema
	case "required", "enum", "type":
		return placeSet
	case "dependentRequired":
		return placeNameSets
	case "title", "description", "$comment":
		return placeText
	case "const", "default", "format", "pattern", "contentEncoding", "contentMediaType",
		"$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor":
		return placeShape
	}
	return placeData
}

// hints are the annotations of a tool that promise something, with the value that promises nothing.
// MCP defines this value as the default.
var hints = []struct {
	name      string
	byDefault bool
}{
	{"destructiveHint", true},
	{"idempotentHint", false},
	{"openWorldHint", true},
	{"readOnlyHint", false},
}

// effectiveHints returns the values of the hints in the order of the table. In the
// specification, destructiveHint and idempotentHint have a meaning only if readOnlyHint is false: a
// tool that changes nothing is not destructive, and can be called repeatedly.
func effectiveHints(annotations *value) (effective [4]bool) {
	for i, h := range hints {
		effective[i] = h.byDefault
		if v := annotations.get(h.name); v != nil && isBoolean(v) {
			effective[i] = v.kind == 't'
		}
	}
	if effective[3] {
		effective[0], effective[1] = false, true
	}
	return effective
}

// normalize returns a definition in the form that is hashed and compared: sets are sorted, and
// annotations have exactly the hints whose effective value is not the default.
func normalize(kind Kind, v *value) *value {
	n := v.clone()
	sortSets(n, kind, placeItem)
	if kind != Tool {
		return n
	}
	annotations := n.get("annotations")
	if annotations != nil && annotations.kind != '{' {
		return n
	}
	effective := effectiveHints(annotations)
	kept := []member{}
	if annotations != nil {
		for _, m := range annotations.members {
			if !isHint(m.name) || !isBoolean(m.value) {
				kept = append(kept, m)
			}
		}
	}
	for i, h := range hints {
		known := slices.ContainsFunc(kept, func(m member) bool { return m.name == h.name })
		if effective[i] != h.byDefault && !known {
			kept = append(kept, member{h.name, boolean(effective[i])})
		}
	}
	slices.SortFunc(kept, func(a, b member) int { return compareNames(a.name, b.name) })
	n.members = slices.DeleteFunc(n.members, func(m member) bool { return m.name == "annotations" })
	if len(kept) > 0 {
		n.members = append(n.members, member{"annotations", &value{kind: '{', members: kept}})
		slices.SortFunc(n.members, func(a, b member) int { return compareNames(a.name, b.name) })
	}
	return n
}

func isHint(name string) bool {
	for _, h := range hints {
		if h.name == name {
			return true
		}
	}
	return false
}

func isBoolean(v *value) bool { return v.kind == 't' || v.kind == 'f' }

func boolean(b bool) *value {
	if b {
		return &value{kind: 't'}
	}
	return &value{kind: 'f'}
}

// sortSets sorts all arrays below v whose order has no meaning.
func sortSets(v *value, kind Kind, p place) {
	for _, m := range v.members {
		sortSets(m.value, kind, p.child(kind, m.name))
	}
	for _, item := range v.items {
		sortSets(item, kind, p.child(kind, ""))
	}
	if p == placeSet && v.kind == '[' {
		slices.SortStableFunc(v.items, func(a, b *value) int {
			return bytes.Compare(a.append(nil), b.append(nil))
		})
	}
}
