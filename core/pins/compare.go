package pins

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Class is the class of a change.
type Class string

// The classes, the most severe first.
const (
	Promise    Class = "promise"    // an annotation of a tool promises less
	Text       Class = "text"       // a text that a model or a user reads
	Shape      Class = "shape"      // a schema, or a member that no class knows
	Launch     Class = "launch"     // the command, its arguments or the URL of a server
	New        Class = "new"        // an item that is not in the lock
	Gone       Class = "gone"       // an item that the server no longer lists
	Package    Class = "package"    // the package or its version
	Decoration Class = "decoration" // icons, _meta, version, capabilities; a promise of more
)

// Classes returns all classes, the most severe first.
func Classes() []Class {
	return []Class{Promise, Text, Shape, Launch, New, Gone, Package, Decoration}
}

// IsHeldBack reports whether a change of this class needs an approval before clients see it.
func (c Class) IsHeldBack() bool {
	return c == Promise || c == Text || c == Shape || c == Launch || c == New
}

// Change is one difference between an approved definition and the server's.
type Change struct {
	Kind    Kind   // the kind of the item; "" for the server itself
	Name    string // of the item
	Class   Class
	Pointer string // to the place in the definition that changed
	Before  string // the approved text, or the value as JSON; "" if there was none
	After   string // "" if there is none
}

// Compare returns the changes from the approved item i to live, the most severe first. It returns
// none if and only if live has the digest of i once its texts fit the holes of i.
func (i *Item) Compare(live *Item) []Change {
	live = i.fill(live)
	if i.digest == live.digest {
		return nil
	}
	c := comparison{kind: i.kind}
	if i.kind == Instructions {
		c.add(placeText, "", i.normal, live.normal)
	} else {
		c.compare(i.normal, live.normal, placeItem, "")
	}
	for n := range c.changes {
		c.changes[n].Kind, c.changes[n].Name = i.kind, i.Name()
	}
	if len(c.changes) == 0 { // only the pointers to the holes differ
		c.changes = []Change{{Kind: i.kind, Name: i.Name(), Class: Shape}}
	}
	sortChanges(c.changes)
	return c.changes
}

// sortChanges sorts changes by class, kind, name and pointer.
func sortChanges(changes []Change) {
	severity := map[Class]int{}
	for n, class := range Classes() {
		severity[class] = n
	}
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(severity[a.Class]-severity[b.Class], cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pointer, b.Pointer))
	})
}

// fill returns live with the placeholders of i where its texts fit into the holes of i.
func (i *Item) fill(live *Item) *Item {
	if len(i.varies) == 0 || len(live.varies) > 0 {
		return live
	}
	v := live.definition.clone()
	for _, at := range i.varies {
		approved, text := i.definition.at(at), v.at(at)
		if text != nil && text.kind == '"' && fits(approved.text, text.text) {
			text.text = approved.text
		}
	}
	filled := &Item{kind: live.kind, definition: v, normal: normalize(live.kind, v)}
	filled.digest = digestOf(filled.normal, i.varies)
	return filled
}

// textEdit sets a text of a definition. The value is nil if the text is removed.
type textEdit struct {
	pointer string
	value   []byte
}

// restore returns the edits after which live is as approved but for changes that are not held back.
// ok is false if replacing texts is not enough.
func (i *Item) restore(live *Item) (edits []textEdit, ok bool) {
	v := live.definition.clone()
	for _, c := range i.Compare(live) {
		switch {
		case !c.Class.IsHeldBack():
			continue
		case c.Class != Text || slices.Contains(i.varies, c.Pointer):
			return nil, false // a text with a hole is not known whole
		}
		approved := i.definition.at(c.Pointer)
		edit := textEdit{pointer: c.Pointer}
		if approved != nil {
			edit.value = approved.append(nil)
		}
		if c.Pointer == "" {
			v = approved.clone()
		} else if !v.put(c.Pointer, approved) {
			return nil, false
		}
		edits = append(edits, edit)
	}
	restored, err := newItem(i.kind, v, nil)
	if err != nil {
		return nil, false
	}
	for _, c := range i.Compare(restored) {
		if c.Class.IsHeldBack() {
			return nil, false
		}
	}
	return edits, true
}

type comparison struct {
	kind    Kind
	changes []Change
}

// compare adds the changes from a to b. One of the two may be nil.
func (c *comparison) compare(a, b *value, p place, pointer string) {
	switch {
	case a.equals(b):
	case p == placeAnnotations && isObject(a) && isObject(b):
		c.annotations(a, b, pointer)
	case a != nil && b != nil && a.kind == '{' && b.kind == '{':
		for _, name := range memberNames(a, b) {
			at := string(jsontext.Pointer(pointer).AppendToken(name))
			c.compare(a.get(name), b.get(name), p.child(c.kind, name), at)
		}
	case a != nil && b != nil && a.kind == '[' && b.kind == '[' && p != placeSet &&
		len(a.items) == len(b.items):
		for i := range a.items {
			at := string(jsontext.Pointer(pointer).AppendToken(strconv.Itoa(i)))
			c.compare(a.items[i], b.items[i], p.child(c.kind, ""), at)
		}
	default:
		c.add(p, pointer, a, b)
	}
}

// isObject reports whether v is an object or absent.
func isObject(v *value) bool { return v == nil || v.kind == '{' }

// annotations adds the changes between the annotations of two tools.
func (c *comparison) annotations(a, b *value, pointer string) {
	before, after := effectiveHints(a), effectiveHints(b)
	for i, h := range hints {
		if before[i] == after[i] {
			continue
		}
		class := Decoration
		if after[i] == h.byDefault { // the default promises nothing
			class = Promise
		}
		c.changes = append(c.changes, Change{Class: class, Pointer: pointer + "/" + h.name,
			Before: strconv.FormatBool(before[i]), After: strconv.FormatBool(after[i])})
	}
	for _, name := range memberNames(a, b) {
		x, y := a.get(name), b.get(name)
		if isHint(name) && (x == nil || isBoolean(x)) && (y == nil || isBoolean(y)) {
			continue
		}
		at := string(jsontext.Pointer(pointer).AppendToken(name))
		c.compare(x, y, placeAnnotations.child(c.kind, name), at)
	}
}

// memberNames returns the names of the members of two objects, sorted.
func memberNames(a, b *value) []string {
	var names []string
	for _, v := range []*value{a, b} {
		if v != nil {
			for _, m := range v.members {
				names = append(names, m.name)
			}
		}
	}
	slices.SortFunc(names, compareNames)
	return slices.Compact(names)
}

// add adds one change.
func (c *comparison) add(p place, pointer string, a, b *value) {
	class := Shape
	switch {
	case p == placeDecoration:
		class = Decoration
	case p == placeText:
		class = Text
	case p == placeData && isText(a) && isText(b):
		class = Text // a member that is not known here may be read by a model
	}
	c.changes = append(c.changes, Change{Class: class, Pointer: pointer, Before: a.String(),
		After: b.String()})
}

// isText reports whether v is a string or absent.
func isText(v *value) bool { return v == nil || v.kind == '"' }
