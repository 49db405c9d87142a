package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
)

// defaultSetter is implemented by the struct for a table whose keys have defaults other than zero.
type defaultSetter interface{ setDefaults() }

// decode fills c, and reports each value of a wrong type. The field of such a value keeps its
// default, so that later checks do not report the value again.
func (l *loader) decode(c *Config, values map[string]any, root *node) {
	c.setDefaults()
	l.decodeTable(reflect.ValueOf(c).Elem(), values, root, "")
}

// decodeTable fills the struct v from the table t, whose node is n. The parameter name is the name
// of the table in errors. It is empty for the top level of the file.
func (l *loader) decodeTable(v reflect.Value, t map[string]any, n *node, name string) {
	fields := fieldsByKey(v.Type())
	for _, key := range n.keys {
		value, ok := t[key]
		if !ok {
			continue
		}
		i, ok := fields[key]
		if !ok {
			l.reportUnknownKey(n.table[key], key, name, fields)
			continue
		}
		f, at := v.Field(i), n.table[key]
		l.decodeValue(f, value, at, join(name, key))
		if f.Kind() == reflect.String && f.Len() == 0 && strings.Contains(at.raw, "${") &&
			!l.hasErrorAt(at) { // many keys would silently have their default
			l.errorf(at, "%s is empty, because %q is empty: give it a value, or remove the key",
				join(name, key), at.raw)
		}
	}
}

// fieldsByKey returns the index of the struct field for each key of a table.
func fieldsByKey(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("toml"); tag != "" && tag != "-" && tag[0] != ',' {
			fields[tag] = i
		}
	}
	return fields
}

// newNames has the new names of keys that had other names before, by their full names.
var newNames = map[string]string{"limits.parked_of_one": "parked_per_principal"}

// goneKeys has what replaces keys that are gone, by their full names.
var goneKeys = map[string]string{"listen.insecure": "an address that other machines can reach " +
	"needs [listen.auth], which authenticates clients; remove the key"}

func (l *loader) reportUnknownKey(n *node, key, table string, fields map[string]int) {
	known := make([]string, 0, len(fields))
	for k := range fields {
		known = append(known, k)
	}
	where := ""
	switch {
	case strings.HasSuffix(table, `"`): // an element of a list
		where = " in " + table
	case table != "":
		where = " in [" + table + "]"
	}
	if instead, ok := goneKeys[join(table, key)]; ok {
		l.errorf(n, "the key %q%s is gone: %s", key, where, instead)
		return
	}
	if name, ok := newNames[join(table, key)]; ok {
		l.errorf(n, "unknown key %q%s: its name is now %q", key, where, name)
		return
	}
	l.errorf(n, "unknown key %q%s%s", key, where, suggest(key, known))
}

// Closest returns the known word that the user probably meant by a misspelt word. In a similar word
// at most a third of the letters differ, or one letter. Closest returns an empty string when no
// known word is similar.
func Closest(word string, known []string) string {
	best, distance := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
}

// suggest returns the end of an error about an unknown word. It names the known word that the user
// probably meant, or all known words.
func suggest(word string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	switch best := Closest(word, known); {
	case best != "":
		return fmt.Sprintf(", did you mean %q?", best)
	case len(known) == 0:
		return ""
	}
	return "; known: " + strings.Join(known, ", ")
}

// join returns the full name of a key for errors. table is the name of the key's table.
func join(table, key string) string {
	switch {
	case table == "":
		return key
	case strings.HasSuffix(table, `"`): // see elementName
		return table + ": " + key
	}
	return table + "." + key
}

// elementName returns the name of element i of a list, for errors. It returns plugin "guard" for an
// element with a name, and plugin[0] for an element without a name.
func elementName(list string, i int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s[%d]", list, i)
	}
	return fmt.Sprintf("%s %q", list, name)
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	networkType  = reflect.TypeFor[Network]()
	positionType = reflect.TypeFor[Position]()
)

// decodeValue fills one field.
func (l *loader) decodeValue(v reflect.Value, value any, n *node, name string) {
	wrong := func(want string) {
		l.errorf(n, "%s must be %s, not %s", name, want, describeType(value))
	}
	switch v.Type() {
	case durationType:
		l.decodeDuration(v, value, n, name)
		return
	case timeType:
		if t, ok := value.(time.Time); ok {
			v.Set(reflect.ValueOf(t))
		} else {
			wrong("a time such as 2027-01-01T00:00:00Z")
		}
		return
	case networkType:
		l.decodeNetwork(v.Addr().Interface().(*Network), value, n, name)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if s, ok := value.(string); ok {
			v.SetString(l.expand(s, n, name))
		} else {
			wrong("a string")
		}
	case reflect.Bool:
		if b, ok := value.(bool); ok {
			v.SetBool(b)
		} else {
			wrong("true or false")
		}
	case reflect.Int:
		switch i, ok := value.(int64); {
		case !ok:
			wrong("a whole number")
		case i <= 0 || int64(int(i)) != i:
			l.errorf(n, "%s must be above zero, not %d", name, i)
		default:
			v.SetInt(i)
		}
	case reflect.Float64:
		switch x := value.(type) {
		case float64:
			v.SetFloat(x)
		case int64:
			v.SetFloat(float64(x))
		default:
			wrong("a number")
		}
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if t, ok := value.(map[string]any); ok {
			l.decodeElement(p.Elem(), t, n, name)
			v.Set(p)
		} else {
			wrong("a table")
		}
	case reflect.Struct:
		if t, ok := value.(map[string]any); ok {
			l.decodeTable(v, t, n, name)
		} else {
			wrong("a table")
		}
	case reflect.Slice:
		l.decodeList(v, value, n, name, wrong)
	case reflect.Map:
		l.decodeMap(v, value, n, name, wrong)
	case reflect.Interface:
		if decoded := l.decodeAny(value, n, name); decoded != nil {
			v.Set(reflect.ValueOf(decoded))
		}
	default:
		panic("config: no way to decode a " + v.Type().String())
	}
}

func (l *loader) decodeDuration(v reflect.Value, value any, n *node, name string) {
	s, ok := value.(string)
	if !ok {
		l.errorf(n, `%s must be a duration such as "60s", not %s`, name, describeType(value))
		return
	}
	text := l.expand(s, n, name)
	if l.hasErrorAt(n) {
		return // the substitution failed
	}
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		l.errorf(n, `%s must be a duration such as "60s" or "1m30s", not %q`, name, s)
	case d <= 0:
		l.errorf(n, "%s must be above zero, not %q", name, s)
	default:
		v.SetInt(int64(d))
	}
}

// decodeList fills a list of strings, of tables, or of named tables. In the file, named tables are
// a table of tables, such as [server.NAME].
func (l *loader) decodeList(v reflect.Value, value any, n *node, name string, wrong func(string)) {
	elem := v.Type().Elem()
	if f, ok := nameFieldIndex(elem); ok {
		t, ok := value.(map[string]any)
		if !ok {
			wrong("a table of tables, [" + name + ".NAME]")
			return
		}
		for _, key := range n.keys {
			e := reflect.New(elem).Elem()
			e.Field(f).SetString(key)
			sub, ok := t[key].(map[string]any)
			if !ok {
				if _, given := t[key]; given {
					l.errorf(n.table[key], "%s must be a table, [%[1]s], not %s", join(name, key),
						describeType(t[key]))
				}
				continue
			}
			l.decodeElement(e, sub, n.table[key], join(name, key))
			v.Set(reflect.Append(v, e))
		}
		return
	}
	items, ok := asList(value)
	if !ok {
		if elem.Kind() == reflect.Struct {
			wrong("a list of tables, [[" + name + "]]")
		} else {
			wrong("a list")
		}
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(items))
	for i, item := range items {
		e, at := reflect.New(elem).Elem(), n.item(i)
		if t, ok := item.(map[string]any); ok && elem.Kind() == reflect.Struct {
			itsName, _ := t["name"].(string)
			l.decodeElement(e, t, at, elementName(name, i, itsName))
		} else {
			l.decodeValue(e, item, at, elementName(name, i, ""))
		}
		list = reflect.Append(list, e)
	}
	v.Set(list)
}

// decodeElement fills a struct that is an element of a list or the target of a pointer. It sets the
// defaults and the positions, and then the fields whose keys the file sets.
func (l *loader) decodeElement(v reflect.Value, t map[string]any, n *node, name string) {
	if d, ok := v.Addr().Interface().(defaultSetter); ok {
		d.setDefaults()
	}
	if f := v.FieldByName("Position"); f.IsValid() && f.Type() == positionType {
		f.Set(reflect.ValueOf(l.doc.position(n.offset)))
	}
	if f := v.FieldByName("KeyPositions"); f.IsValid() {
		positions := make(map[string]Position, len(n.keys))
		for _, key := range n.keys {
			positions[key] = l.doc.position(n.table[key].offset)
		}
		f.Set(reflect.ValueOf(positions))
	}
	l.decodeTable(v, t, n, name)
}

// nameFieldIndex returns the index of the field of t that holds the name of a table, such as NAME
// in [server.NAME]. ok is false when t has no such field.
func nameFieldIndex(t reflect.Type) (index int, ok bool) {
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if t.Field(i).Tag.Get("toml") == ",name" {
			return i, true
		}
	}
	return 0, false
}

func (l *loader) decodeMap(v reflect.Value, value any, n *node, name string, wrong func(string)) {
	t, ok := value.(map[string]any)
	if !ok {
		wrong("a table")
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(t))
	for _, key := range n.keys {
		if item, ok := t[key]; ok {
			e := reflect.New(v.Type().Elem()).Elem()
			l.decodeValue(e, item, n.table[key], join(name, key))
			m.SetMapIndex(reflect.ValueOf(key), e)
		}
	}
	v.Set(m)
}

// decodeAny returns a value whose keys this package does not know, such as the settings of a
// plugin. It expands the substitutions in all strings of the value.
func (l *loader) decodeAny(value any, n *node, name string) any {
	if s, ok := value.(string); ok {
		return l.expand(s, n, name)
	}
	if t, ok := value.(map[string]any); ok {
		out := make(map[string]any, len(t))
		for k, v := range t {
			out[k] = l.decodeAny(v, n.lookup(k), join(name, k))
		}
		return out
	}
	items, ok := asList(value)
	if !ok {
		return value
	}
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = l.decodeAny(v, n.item(i), fmt.Sprintf("%s[%d]", name, i))
	}
	return out
}

// asList returns the elements of a list. The parser returns a list as one of two types.
func asList(value any) ([]any, bool) {
	switch a := value.(type) {
	case []any:
		return a, true
	case []map[string]any:
		items := make([]any, len(a))
		for i := range a {
			items[i] = a[i]
		}
		return items, true
	}
	return nil, false
}

// describeType returns the name of the type of a value, for errors.
func describeType(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	}
	return "a list"
}
