package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// expand returns s with ${env:NAME} and ${file:PATH} replaced by their values, and $${ by the text
// ${. When a substitution fails, expand reports an error and returns an empty string. It keeps s in
// the node, since errors quote s and never the result.
func (l *loader) expand(s string, n *node, name string) string {
	n.raw = s
	var out strings.Builder
	failed := false
	for rest := s; ; {
		i := strings.Index(rest, "${")
		if i < 0 {
			out.WriteString(rest)
			break
		}
		if i > 0 && rest[i-1] == '$' {
			if strings.HasPrefix(rest[i:], tokenPrefix) && serverEnv.MatchString(name) {
				l.errorf(n, `%s: "$%s" cannot be written here`, name, tokenPrefix)
				return ""
			}
			out.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		out.WriteString(rest[:i])
		word, after, ok := strings.Cut(rest[i+2:], "}")
		if !ok {
			l.errorf(n, `%s: "${" has no closing "}"; write $${ for a literal "${"`, name)
			return ""
		}
		if strings.HasPrefix(word, "token:") && serverEnv.MatchString(name) {
			// It is replaced at the start of each process, by the token of its principal.
			out.WriteString("${" + word + "}")
			rest = after
			continue
		}
		value, problem := l.substitute(word)
		if problem != "" {
			l.errorf(n, "%s: ${%s} %s", name, word, problem)
			failed = true
		}
		l.noteSubstituted(value, name)
		out.WriteString(value)
		rest = after
	}
	if failed {
		return ""
	}
	return out.String()
}

// substitute returns the value of one substitution, or the end of an error message.
func (l *loader) substitute(word string) (value, problem string) {
	kind, arg, _ := strings.Cut(word, ":")
	switch kind {
	case "env":
		value, ok := os.LookupEnv(arg)
		if !ok {
			return "", "is not set in the environment"
		}
		return value, ""
	case "file":
		b, err := l.readFile(l.absPath(arg))
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return "", "cannot be read: " + err.Error()
		}
		// Editors and the command echo end a file with a line break. It is not part of the secret.
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), ""
	}
	if kind == "token" {
		return "", "is only for the env of a server"
	}
	return "", "is not a substitution; write ${env:NAME} or ${file:PATH}, or $${ for a literal ${"
}
