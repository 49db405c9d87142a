package tools

import (
	"encoding/hex"
	"strings"
)

// normalizeURI returns a URI as servers are likely to read it (RFC 3986, section 6.2.2): without
// white space, scheme and host in lower case, percent-encoding decoded once, "/" for "\", and
// without dot segments and empty segments. Local files have one form (RFC 8089).
func normalizeURI(uri string) string {
	uri = strings.Map(func(r rune) rune {
		if r <= ' ' {
			return -1 // URL parsers of browsers drop tabs and line ends
		}
		return r
	}, uri)
	end := len(uri)
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		end = i
	}
	scheme, rest, ok := strings.Cut(uri[:end], ":")
	if ok {
		scheme = strings.ToLower(scheme) + ":"
	} else {
		scheme, rest = "", scheme
	}
	rest = strings.ReplaceAll(percentDecode(rest), `\`, "/")
	host := ""
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		i := strings.IndexByte(after, '/')
		if i < 0 {
			i = len(after)
		}
		host, rest = "//"+strings.ToLower(after[:i]), after[i:]
	}
	if scheme == "file:" && (host == "" || host == "//localhost") && strings.HasPrefix(rest, "/") {
		host = "//"
	}
	return scheme + host + cleanPath(rest) + percentDecode(uri[end:])
}

// percentDecode decodes the percent escapes in s once, and keeps every other "%".
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// cleanPath returns path without empty segments and ".", and with each ".." resolved. It keeps a
// trailing slash.
func cleanPath(path string) string {
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for i, s := range segments {
		isFirst, isLast := i == 0, i == len(segments)-1
		switch {
		case s == "..":
			if len(kept) > 0 && kept[len(kept)-1] != "" {
				kept = kept[:len(kept)-1]
			}
		case s != "." && s != "" || isFirst:
			kept = append(kept, s)
		}
		if isLast && !isFirst && (s == "." || s == ".." || s == "") {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}
