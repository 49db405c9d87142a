package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Kind is the kind of a pinned item.
type Kind string

// The kinds of items.
const (
	Tool         Kind = "tool"
	Prompt       Kind = "prompt"
	Template     Kind = "template"
	Resource     Kind = "resource"
	Instructions Kind = "instructions"
)

// nameMember returns the member of a definition that identifies the item among its kind.
func (k Kind) nameMember() string {
	switch k {
	case Template:
		return "uriTemplate"
	case Resource:
		return "uri"
	}
	return "name"
}

// Item is one definition: a tool, a prompt, a resource template, a resource, or the instructions of
// a server, whose definition is a string. An Item does not change.
type Item struct {
	kind       Kind
	definition *value
	varies     []string // pointers to strings with holes, sorted
	normal     *value   // the definition as it is compared
	digest     string
}

// digestVersion is the first byte that is hashed. It is the version of the digest formula.
const digestVersion = 1

// NewItem returns the item with a definition, which is JSON.
func NewItem(kind Kind, definition []byte) (*Item, error) {
	v, err := parseValue(definition)
	if err != nil {
		return nil, fmt.Errorf("parse the %s: %w", kind, err)
	}
	return newItem(kind, v, nil)
}

func newItem(kind Kind, v *value, varies []string) (*Item, error) {
	want := byte('{')
	if kind == Instructions {
		want = '"'
	}
	if byte(v.kind) != want {
		return nil, fmt.Errorf("the %s is not a JSON %s", kind,
			map[byte]string{'{': "object", '"': "string"}[want])
	}
	i := &Item{kind: kind, definition: v, varies: varies}
	if kind != Instructions {
		name := v.get(kind.nameMember())
		if name == nil || name.kind != '"' {
			return nil, fmt.Errorf("the %s has no string %q", kind, kind.nameMember())
		}
		if slices.Contains(varies, "/"+kind.nameMember()) {
			return nil, fmt.Errorf("the %s of a %s cannot vary", kind.nameMember(), kind)
		}
	}
	for _, at := range varies {
		if hole := v.at(at); hole == nil || hole.kind != '"' || !hasHole(hole.text) {
			return nil, fmt.Errorf("varies: there is no string with a hole such as ${date} at %q",
				at)
		}
	}
	if !slices.IsSorted(varies) || len(slices.Compact(slices.Clone(varies))) != len(varies) {
		return nil, errors.New("varies is not sorted")
	}
	i.normal = normalize(kind, v)
	i.digest = digestOf(i.normal, varies)
	return i, nil
}

// digestOf returns the digest of version 1: the SHA-256 of the version byte, the canonical form of
// the normalized definition, and the pointers to holes, if any. THE FORMULA MUST NEVER CHANGE:
// every lock file in the world would have to be approved again. A new formula needs a new version
// of the file.
func digestOf(normal *value, varies []string) string {
	b := normal.append([]byte{digestVersion})
	for _, at := range varies {
		b = appendString(append(b, '\n'), at)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Name returns the name of a tool or prompt, the URI template of a template, or the URI of a
// resource. It returns "" for instructions.
func (i *Item) Name() string {
	if i.kind == Instructions {
		return ""
	}
	return i.definition.get(i.kind.nameMember()).text
}

// Kind returns the kind of the item.
func (i *Item) Kind() Kind { return i.kind }

// Digest returns the digest of the definition, as "sha256:" and hexadecimal digits.
func (i *Item) Digest() string { return i.digest }

// Definition returns the definition as JSON. Members are sorted, and each hole is a placeholder
// such as ${date}.
func (i *Item) Definition() []byte { return i.definition.append(nil) }

// Varies returns the pointers to the strings that have holes.
func (i *Item) Varies() []string { return slices.Clone(i.varies) }
