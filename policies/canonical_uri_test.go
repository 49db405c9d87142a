package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// otherSpellings has, for each URI, other spellings that reach the same resource through the URL
// parsers of the usual SDKs.
var otherSpellings = map[string][]string{
	"file:///D/a": {"file://localhost/D/a", "file://LOCALHOST/D/a", "file://%6cocalhost/D/a",
		"file://localhost./D/a", "file:/D/a", "file:////D/a", "file:///D//a", "File:///D/a",
		"FILE:/D/a", " file:///D/a", "file:///D/a ", "\u00a0file:///D/a", "fi\tle:///D/a",
		"file:///D/\ta", "file:///\nD/a", "file:///%44/a", "file:///D/%61", "file:///x/../D/a",
		"file:///x/%2e%2E/D/a", "file:///D/./a", `file:///D\a`, `file:\\\D\a`,
		"file://127.0.0.1/D/a"},
	"https://h.example/D/a": {"HTTPS://h.example/D/a", "https://H.Example/D/a",
		"https://h.example:443/D/a", "https://h.example./D/a", "https://h.example:/D/a",
		"https://h.example/%44/a", "https://h.example/x/../D/a", "https://u@h.example/D/a",
		"https:/h.example/D/a", "https:h.example/D/a", `https:\\h.example\D\a`,
		"https://h.exampl\te/D/a", "https://%68.example/D/a", "https://ｈ.example/D/a"},
	"note://box/D/a": {"NOTE://box/D/a", "note://box/%44/a", "note://box/x/../D/a",
		" note://box/D/a", "note://box/D/\ra"},
}

// resourceUses returns requests that name the resource uri: one request for each method that can
// name a resource.
func resourceUses(uri string) []*mcp.Message {
	request := func(method, params string) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(params)), mcp.ToServer, "")
	}
	all := []*mcp.Message{reading(uri)}
	for _, method := range []string{"resources/subscribe", "resources/unsubscribe"} {
		m := request(method, `{"uri":`+quoted(uri)+`}`)
		m.Name = uri
		all = append(all, m)
	}
	m := request("completion/complete", `{"ref":{"type":"ref/resource","uri":`+quoted(uri)+
		`},"argument":{"name":"a","value":""}}`)
	m.Name = uri
	return append(all, m)
}

// A rule about a URI holds for every spelling of the URI, whether the URI was listed or not. A
// message that passes is not changed.
func TestRulesHoldForEverySpellingOfURI(t *testing.T) {
	for uri, spellings := range otherSpellings {
		folder := strings.TrimSuffix(uri, "a")
		for name, rule := range map[string]string{
			"hides the URI":                 fmt.Sprintf(`hide contains %q`, uri),
			"hides listed URIs":             fmt.Sprintf(`hide contains item.uri if { some item in input.items; startswith(item.uri, %q) }`, folder),
			"hides by a member of the item": `hide contains item.uri if { some item in input.items; item.size > 5 }`,
			"denies the name":               fmt.Sprintf(`deny contains "no" if startswith(input.name, %q)`, folder),
			"denies a member of the params": fmt.Sprintf(`deny contains "no" if { some u in [object.get(input.params, "uri", ""), object.get(input.params, ["ref", "uri"], "")]; startswith(u, %q) }`, folder),
		} {
			for _, listed := range []string{"", uri, spellings[0]} {
				if listed == "" && strings.HasPrefix(name, "hides by") {
					continue
				}
				s := loaded(t, rule)
				if listed != "" {
					got := verdictOf(t, s, answered(sent(mcp.NewRequest("1", "resources/list",
						nil), mcp.ToServer, ""), `{"resources":[{"uri":`+quoted(listed)+
						`,"size":9},{"uri":"file:///other","size":1}]}`))
					if strings.Contains(got, quoted(listed)) && strings.HasPrefix(name, "hides") {
						t.Errorf("%s\nthe list has the hidden URI %s: %s", rule, listed, got)
					}
				}
				for _, spelling := range append([]string{uri}, spellings...) {
					for _, m := range resourceUses(spelling) {
						if got := verdictOf(t, s, m); !strings.HasPrefix(got, "denied: t: ") {
							t.Errorf("%s\nlisted %q\n%s %q: %s, want it denied", rule, listed,
								m.Method, spelling, got)
						}
					}
				}
			}
		}
	}
	s := loaded(t, `hide contains item.uri if { some item in input.items; startswith(item.uri, "file:///D/") }
deny contains "no" if startswith(input.name, "https://h.example/D")`)
	for _, uri := range []string{"file:///Data/a", "file:///e/%44/a", "https://h.example:8443/D/a",
		"http://h.example/D/a", "file:/e/b", "NOTE://D/a", "memo:D/a", "file:///e/%2544"} {
		for _, m := range resourceUses(uri) {
			if got := verdictOf(t, s, m); got != string(m.Body()) {
				t.Errorf("%s %q: %s, want %s", m.Method, uri, got, m.Body())
			}
		}
	}
}

// A resource that a rule hid from a list because of another item stays hidden. This also holds for
// URIs that some servers read as the hidden URI, because they ignore the query or the host.
func TestHiddenResourceStaysHiddenWithAQueryOrAHost(t *testing.T) {
	s := loaded(t, `hide contains "file:///D/a" if {
	some item in input.items
	item.uri == "file:///b"
}`)
	list := answered(sent(mcp.NewRequest("1", "resources/list", nil), mcp.ToServer, ""),
		`{"resources":[{"uri":"file:///D/a"},{"uri":"file:///b"}]}`)
	if got := verdictOf(t, s, list); strings.Contains(got, "file:///D/a") {
		t.Fatalf("the list has the hidden resource: %s", got)
	}
	for _, uri := range []string{"file:///D/a", "file:///D/a?x", "file:///D/a#x",
		"file://host/D/a"} {
		if got := verdictOf(t, s, reading(uri)); !strings.Contains(got, "is hidden from") {
			t.Errorf("%s: the verdict is %q, want it denied as hidden", uri, got)
		}
	}
	if refused(t, s, reading("file:///b")) {
		t.Error("the resource that the list shows is denied")
	}
}

// A rule holds for every spelling of a URI in a subscription and in an update notification.
func TestRulesHoldForEverySpellingOfSubscribedURI(t *testing.T) {
	s := loaded(t, `deny contains "no" if "file:///D/a" in input.params.notifications.resourceSubscriptions
deny contains "no" if { input.method == "notifications/resources/updated"; input.params.uri == "file:///D/a" }`)
	for _, spelling := range append([]string{"file:///D/a"}, otherSpellings["file:///D/a"]...) {
		for _, m := range []*mcp.Message{
			request("subscriptions/listen",
				`{"notifications":{"resourceSubscriptions":["file:///b",`+quoted(spelling)+`]}}`,
				""),
			fromServer(mcp.Notification, "notifications/resources/updated",
				`{"uri":`+quoted(spelling)+`}`),
		} {
			if !refused(t, s, m) {
				t.Errorf("%s %q passes", m.Method, spelling)
			}
		}
	}
}

// A rule gets the definition of a listed resource for the canonical spelling of its URI.
func TestDefinitionBelongsToCanonicalURI(t *testing.T) {
	for _, spelling := range append([]string{"file:///D/a"}, otherSpellings["file:///D/a"]...) {
		s := loaded(t, `deny contains "large" if input.item.size == 9`)
		verdictOf(t, s, answered(request("resources/list", `{}`, ""),
			`{"resources":[{"uri":"file:///D/b","size":1},{"uri":`+quoted(spelling)+`,"size":9}]}`))
		for uri, want := range map[string]bool{"file:///D/a": true, spelling: true,
			"file:///D/b": false, "file:///D/c": false} {
			if got := refused(t, s, reading(uri)); got != want {
				t.Errorf("listed %q, the read of %q is denied: %v, want %v", spelling, uri, got,
					want)
			}
		}
	}
}

// The name of a tool is no URI: it has only one spelling.
func TestNameOfToolIsNotCanonical(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.name == "file:///D/a"`)
	for _, spelling := range otherSpellings["file:///D/a"] {
		m := request("tools/call", `{"name":`+quoted(spelling)+`}`, spelling)
		if refused(t, s, m) {
			t.Errorf("a rule about the tool file:///D/a denies the tool %q", spelling)
		}
	}
}

// A rule about the result of a read holds for every spelling of the URI in the request.
func TestRedactionHoldsForEverySpellingOfURI(t *testing.T) {
	s := loaded(t, `redact contains {"pattern": "k1", "with": "[gone]"} if { input.kind == "response"; input.name == "file:///D/a" }
redact contains {"pattern": "k2", "with": "[gone]"} if { input.kind == "response"; input.request.uri == "file:///D/a" }`)
	for _, spelling := range append([]string{"file:///D/a"}, otherSpellings["file:///D/a"]...) {
		m := answered(reading(spelling), `{"contents":[{"text":"k1 k2"}]}`)
		got := verdictOf(t, s, m)
		if m.Name != spelling || m.Request.Name != spelling {
			t.Errorf("the message's URI %q was changed to %q, its request's to %q", spelling,
				m.Name, m.Request.Name)
		}
		if want := `{"contents":[{"text":"[gone] [gone]"}]}`; got != want {
			t.Errorf("%q: %s, want %s", spelling, got, want)
		}
		noName, noRequest := *m, *m
		noName.Name, noRequest.Request = "", nil
		for want, m := range map[string]*mcp.Message{"k1 [gone]": &noName,
			"[gone] k2": &noRequest} {
			if got := verdictOf(t, s, m); got != `{"contents":[{"text":"`+want+`"}]}` {
				t.Errorf("%q without its request or its name: %s, want %s", spelling, got, want)
			}
		}
		completion := answered(request("completion/complete", `{"ref":{"type":"ref/resource",`+
			`"uri":`+quoted(spelling)+`}}`, spelling), `{"completion":{"values":["k1 k2"]}}`)
		if got, want := verdictOf(t, s, completion),
			`{"completion":{"values":["[gone] k2"]}}`; got != want {
			t.Errorf("completion of %q: %s, want %s", spelling, got, want)
		}
	}
}
