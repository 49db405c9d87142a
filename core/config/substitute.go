package config

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// expand is s with its substitutions made: ${env:NAME}, ${file:PATH}, and $${ for the text ${. It is
// "" when one of them cannot be, and that has been noted. s itself is kept at the node: errors
// quote that, never the answer.
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
			out.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		out.WriteString(rest[:i])
		word, after, ok := strings.Cut(rest[i+2:], "}")
		if !ok {
			l.errorf(n, `%s: "${" without "}"; write $${ for the text itself`, name)
			return ""
		}
		value, problem := l.substitute(word)
		if problem != "" {
			l.errorf(n, "%s: ${%s} %s", name, word, problem)
			failed = true
		}
		out.WriteString(value)
		rest = after
	}
	if failed {
		return ""
	}
	return out.String()
}

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
		// Editors and echo end a file with a line break that is no part of the secret.
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), ""
	}
	return "", "is no substitution: there are ${env:NAME} and ${file:PATH}; write $${ for the " +
		"text itself"
}
