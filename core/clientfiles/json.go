package clientfiles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// maxNesting limits how deeply the values of a file may nest. The parser of JSON has no limit of
// its own, and deeper values could exhaust its stack.
const maxNesting = 1000

// parseJSON parses JSON that may have comments and trailing commas.
func parseJSON(doc string) (*value, error) {
	if err := CheckNesting(doc); err != nil {
		return nil, err
	}
	v, err := hujson.Parse([]byte(doc))
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	return jsonValue(doc, &v), nil
}

func jsonValue(doc string, v *hujson.Value) *value {
	out := &value{start: v.StartOffset, end: v.EndOffset, raw: doc[v.StartOffset:v.EndOffset]}
	switch x := v.Value.(type) {
	case *hujson.Object:
		out.kind = object
		for i := range x.Members {
			m := &x.Members[i]
			name := m.Name.Value.(hujson.Literal)
			out.add(member{name: name.String(), start: m.Name.StartOffset,
				value: jsonValue(doc, &m.Value)})
		}
	case *hujson.Array:
		out.kind = list
		for i := range x.Elements {
			out.items = append(out.items, jsonValue(doc, &x.Elements[i]))
		}
	case hujson.Literal:
		if x.Kind() == '"' {
			out.kind, out.text = text, x.String()
		}
	}
	return out
}

// CheckNesting returns an error if JSON, which may have comments, nests so deeply that its parser
// could exhaust the stack.
func CheckNesting(doc string) error {
	if nestsDeeply(doc) {
		return fmt.Errorf("its values nest more than %d levels deep", maxNesting)
	}
	return nil
}

// nestsDeeply reports whether JSON with comments nests more than maxNesting levels deep.
func nestsDeeply(doc string) bool {
	depth := 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		case '/':
			if i+1 >= len(doc) {
				continue
			}
			switch doc[i+1] {
			case '/':
				for i < len(doc) && doc[i] != '\n' {
					i++
				}
			case '*':
				for i += 2; i+1 < len(doc) && doc[i:i+2] != "*/"; i++ {
				}
				i++
			}
		case '[', '{':
			if depth++; depth > maxNesting {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}
