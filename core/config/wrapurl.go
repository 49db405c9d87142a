package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// WrapURL is Wrap for a server that is reached over HTTP. The values of headers, and the URL, may
// have substitutions as in a file: ${env:NAME} and ${file:PATH}. If the URL or a header has a
// mistake, the error is of type Errors.
func WrapURL(name, url string, headers map[string]string) (*Config, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working folder: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[server.%s]\nurl = %s\n[server.%[1]s.headers]\n", name, QuoteTOML(url))
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&text, "%s = %s\n", QuoteTOML(key), QuoteTOML(headers[key]))
	}
	l := &loader{dir: dir, files: map[string][]byte{}}
	c := l.load("", newDocument("", text.String()))
	if len(l.errs) > 0 {
		for _, e := range l.errs {
			e.Position = Position{} // the text is not the user's
		}
		return nil, l.errs
	}
	c.Listen.Stdio, c.Names.Prefix = true, "never"
	c.Servers[0].Position, c.Servers[0].Cwd = Position{}, ""
	c.source = &snapshot{files: l.order, substituted: l.substituted}
	return c, nil
}
