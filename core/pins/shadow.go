package pins

import (
	"strings"
	"unicode"
)

// foreignNames holds the names of the tools and prompts of other servers, and the prefixes that
// clients see before the names of other servers' items.
type foreignNames struct {
	names    map[string]string // the server of each name
	prefixes map[string]string // the server of each prefix, in lower case
}

// minForeignName is the length of the shortest name that is looked for in texts. A shorter one, or
// one that is a plain word, such as "search", is in many honest texts.
const minForeignName = 6

// namesOfOthers returns the names that the texts of a server should not contain.
func namesOfOthers(servers map[string]*Server, server string) foreignNames {
	f := foreignNames{map[string]string{}, map[string]string{}}
	for other, s := range servers {
		if other == server {
			continue
		}
		f.prefixes[strings.ToLower(other)+"__"] = other
		for _, i := range s.Items() {
			name := i.Name()
			if (i.kind == Tool || i.kind == Prompt) && len(name) >= minForeignName &&
				!isPlainWord(name) {
				f.names[name] = other
			}
		}
	}
	if own := servers[server]; own != nil {
		for _, i := range own.Items() {
			delete(f.names, i.Name())
		}
	}
	return f
}

// isPlainWord reports whether a name could be a word of a sentence.
func isPlainWord(name string) bool {
	for i, r := range name {
		if !unicode.IsLetter(r) || i > 0 && unicode.IsUpper(r) {
			return false
		}
	}
	return true
}

// in returns a name or prefix of another server in the texts of an item, and that server. It
// returns "" if there is none.
func (f foreignNames) in(i *Item) (name, server string) {
	if len(f.names)+len(f.prefixes) == 0 {
		return "", ""
	}
	var visit func(v *value) bool
	visit = func(v *value) bool {
		if v.kind == '"' {
			name, server = f.inText(v.text)
			return name != ""
		}
		for _, m := range v.members {
			if visit(m.value) {
				return true
			}
		}
		for _, item := range v.items {
			if visit(item) {
				return true
			}
		}
		return false
	}
	if i.kind == Instructions {
		visit(i.definition)
		return name, server
	}
	for _, m := range i.definition.members {
		if m.name != i.kind.nameMember() && visit(m.value) {
			break
		}
	}
	return name, server
}

func (f foreignNames) inText(text string) (name, server string) {
	for token := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '_' && r != '-' && r != '.'
	}) {
		token = strings.Trim(token, ".-")
		if server, ok := f.names[token]; ok {
			return token, server
		}
		before, _, found := strings.Cut(token, "__")
		if server, ok := f.prefixes[strings.ToLower(before)+"__"]; found && ok {
			return before + "__", server
		}
	}
	return "", ""
}

// Shadow returns the name of a tool or prompt of another server, or the prefix of its names, that
// the texts of an item of a server contain, and that server. Such a text may steer the use of the
// other server. Shadow returns "" if the texts contain none.
func Shadow(servers map[string]*Server, server string, i *Item) (name, other string) {
	return namesOfOthers(servers, server).in(i)
}
