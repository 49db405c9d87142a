package proxy

import (
	"strings"
	"testing"
)

// FuzzTemplateOwner checks the owner of a URI that no server listed. The owner is the server with a
// template whose literal beginning contains a scheme and is a prefix of the URI.
func FuzzTemplateOwner(f *testing.F) {
	for _, s := range [][2]string{{"t://{x}", "t://1"}, {"{x}", "t://1"}, {"t{x}://", "t://1"},
		{"t://a/{+x}{?y*}", "t://a/" + strings.Repeat("/", 99)}, {"t:", "t:"},
		{"t://{{{{{{", "t://{"}, {"t://}{", "t://}"}, {"t://" + strings.Repeat("{x}", 99), "t://"},
		{"t://" + strings.Repeat("x", 3000), "t://x"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, template, uri string) {
		var o uriOwners
		o.add("a", ownedURI{template, true})
		literal, _, _ := strings.Cut(template, "{")
		want := len(template) <= maxURIBytes && strings.Contains(literal, ":") &&
			strings.HasPrefix(uri, literal)
		if server, ok := o.owner(uri); ok != want || want && server != "a" {
			t.Errorf("template %q, URI %q: got the owner %q (found: %v), want found: %v", template,
				uri, server, ok, want)
		}
		o.add("b", ownedURI{template, true})
		if server, ok := o.owner(uri); ok {
			t.Errorf("two servers have the template %q, and %q belongs to %q, want no owner",
				template, uri, server)
		}
		o.removeServer("a")
		if _, ok := o.owner(uri); ok != want {
			t.Errorf("only server b has the template %q, URI %q: owner found: %v, want %v",
				template, uri, ok, want)
		}
	})
}
