package pins

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func item(t testing.TB, kind Kind, definition string) *Item {
	t.Helper()
	i, err := NewItem(kind, []byte(definition))
	if err != nil {
		t.Fatalf("%s: %v", definition, err)
	}
	return i
}

// These digests are in the lock files of users. If this test fails, the formula has changed: add a
// new version of the file instead.
func TestDigestsOfVersion1NeverChange(t *testing.T) {
	for n, c := range []struct {
		kind               Kind
		definition, digest string
	}{
		{Tool, `{"name":"a"}`,
			"f7b380dd6feadc13719a58558f389fe332133f786f82978c5e11ff0916a135cd"},
		{Tool, `{"description":"d","name":"a"}`,
			"39773e48d7a8087a1f4725f2398730cbfd1beda35e0e457790f94a74fce759bf"},
		{Tool, `{"name":"a","title":"\u00e9"}`,
			"a5dc69a04a58e510801758121649dcec1ed369f189e0dbe53032dbb4ae4b7139"},
		{Tool, `{"name":"a","inputSchema":{"type":"object"}}`,
			"21972b1d0074770c249b7f660dc13b14b1631458ed445bdc4be45b6e5db38303"},
		{Tool, `{"name":"a","inputSchema":{"type":["string","null"],"required":["b","a"]}}`,
			"c4c7ca6184a54fbf3f93ee15a83c1c614c48e0bf48d84c59e22a1e33783da3e0"},
		{Tool, `{"name":"a","inputSchema":{"properties":{"enum":{"enum":[3,1,2]}}}}`,
			"37d752a012604af8ac67bbfbbf934bc0da6545e57c47773a5cd43fb8729f417a"},
		{Tool, `{"name":"a","annotations":{"readOnlyHint":true}}`,
			"442d6fe756d7fe102ab92d8e313d2440c32a3a8c081c7e7b8aff86a1386d877c"},
		{Tool, `{"name":"a","annotations":{"destructiveHint":false,"title":"A"}}`,
			"d3095b0c3a94b0b79e79a36d6107add4129bd4b577f2dfdca052dd1bd3943fb4"},
		{Tool, `{"name":"a","annotations":{"openWorldHint":"no"}}`,
			"66a4d729971a58635f3557482a16cbb28deef8a152f70fe68bfb7d75575d502c"},
		{Tool, `{"name":"a","x":1.50}`,
			"214de81777dac532081fd0ed6c5da54241a27ea4136dc42e9543a3bccb40ebdc"},
		{Tool, `{"name":"a","x":-1e3}`,
			"184caa2261546c25bdc6a82d83ea4c7c76ea29bab68c8d36a625976edbc2e340"},
		{Tool, `{"name":"a","\uffff":1,"\ud83d\ude00":2}`,
			"38e0339123ec2dc2cecc6e98970ee5bfebd55a5ea0c17d235b0e6c260e24c6f8"},
		{Tool, `{"name":"a","description":"\ud83d"}`,
			"e8c829b157c758361e0d06a2335d5bf4e7b4c47e8187d13fea59fe93bc56762c"},
		{Tool, `{"name":"a","description":"\u0007\n\t/\""}`,
			"b980ba6a7b44c671a3e6291ff6e00a0ee7af021f3c40700d2b1a5dc8cc22cf6f"},
		{Tool, `{"name":"a","_meta":{"b":[true,false,null]}}`,
			"e2a60dd51d3847ae1e68d54fddbf4fe9581a32e231292c27a44367f1fbe95c08"},
		{Prompt, `{"name":"p","arguments":[{"name":"b"},{"name":"a"}]}`,
			"3d3096f9fcea65d7b761f9c24a07f119bf20492d5d85d662e568153b33435c3e"},
		{Template, `{"name":"n","uriTemplate":"file:///{path}"}`,
			"66f94fc304feafb18c33e77d22da3cbc82f020079e26d07b8f24cb6f8f5cf7e7"},
		{Resource, `{"name":"n","uri":"file:///a","size":3}`,
			"f9b121714a9e796f97a28dc498ebaf7525210c8af23ab8c40f4bb7924d7852c2"},
		{Instructions, `"Be kind."`,
			"309bc04e16880239f6ebecfb9f810413322baefee4b5925cb24cf425248a9881"},
		{Instructions, `""`,
			"d8f27cf7b748829e0f9f6fbf8b562a2329fe6855bfd12774bcbe04cabbd97401"},
	} {
		if got := item(t, c.kind, c.definition).Digest(); got != "sha256:"+c.digest {
			t.Errorf("case %d, %s: digest %s, want sha256:%s", n, c.definition, got, c.digest)
		}
	}
}

func TestDigestCoversHoles(t *testing.T) {
	here := Surroundings{Now: time.Date(2026, 10, 23, 9, 0, 0, 0, time.UTC)}
	plain := item(t, Tool, `{"name":"a","description":"as of ${date}"}`)
	learned, _ := item(t, Tool, `{"name":"a","description":"as of 2026-10-23"}`).Learn(nil, here)
	const want = "sha256:e7ef98af407aabc3d3d41c2291742d1e94ff4125495625edc5db4faf054c4e17"
	if learned.Digest() != want {
		t.Errorf("digest %s, want %s", learned.Digest(), want)
	}
	if plain.Digest() == learned.Digest() {
		t.Error("a text with a hole has the digest of a text that contains a placeholder")
	}
}

const fullTool = `{"name":"t","title":"T","description":"Does it.",` +
	`"inputSchema":{"type":"object","title":"In","description":"d","properties":{` +
	`"a":{"type":["string","null"],"description":"the a","enum":["x","y"],"default":"x"},` +
	`"required":{"type":"array","items":{"type":"number","minimum":1}}},` +
	`"required":["a","required"],"additionalProperties":false,"$defs":{"d":{"const":1}}},` +
	`"outputSchema":{"type":"object","properties":{"o":{"type":"string","description":"out"}}},` +
	`"annotations":{"title":"An","readOnlyHint":true,"openWorldHint":false},` +
	`"icons":[{"src":"https://a.example/i.png"}],"execution":{"taskSupport":"optional"},` +
	`"_meta":{"a":1}}`

func TestEachFieldOfAToolHasItsClass(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		class          Class
		pointer        string
	}{
		{"title", `"title":"T"`, `"title":"U"`, Text, "/title"},
		{"title removed", `"title":"T",`, ``, Text, "/title"},
		{"description", `Does it.`, `Does it!`, Text, "/description"},
		{"description removed", `"description":"Does it.",`, ``, Text, "/description"},
		{"description of another type", `"description":"Does it."`, `"description":7`, Text,
			"/description"},
		{"text of the schema", `"description":"d"`, `"description":"e"`, Text,
			"/inputSchema/description"},
		{"title of the schema", `"title":"In"`, `"title":"In2"`, Text, "/inputSchema/title"},
		{"text of a property", `the a`, `the b`, Text, "/inputSchema/properties/a/description"},
		{"type", `["string","null"]`, `["string","number"]`, Shape,
			"/inputSchema/properties/a/type"},
		{"a word of an enum", `["x","y"]`, `["x","z"]`, Shape, "/inputSchema/properties/a/enum"},
		{"an added word", `["x","y"]`, `["x","y","z"]`, Shape, "/inputSchema/properties/a/enum"},
		{"default", `"default":"x"`, `"default":"y"`, Shape, "/inputSchema/properties/a/default"},
		{"a property named required", `"minimum":1`, `"minimum":2`, Shape,
			"/inputSchema/properties/required/items/minimum"},
		{"required", `"required":["a","required"]`, `"required":["a"]`, Shape,
			"/inputSchema/required"},
		{"additional properties", `"additionalProperties":false`, `"additionalProperties":true`,
			Shape, "/inputSchema/additionalProperties"},
		{"const", `"const":1`, `"const":1.0`, Shape, "/inputSchema/$defs/d/const"},
		{"added property", `"a":{`, `"b":{"description":"x"},"a":{`, Shape,
			"/inputSchema/properties/b"},
		{"text of the output", `"description":"out"`, `"description":"in"`, Text,
			"/outputSchema/properties/o/description"},
		{"output", `"o":{"type":"string"`, `"o":{"type":"number"`, Shape,
			"/outputSchema/properties/o/type"},
		{"unknown text", `"name":"t"`, `"name":"t","hint":"Use me."`, Text, "/hint"},
		{"unknown member", `"name":"t"`, `"name":"t","cost":1`, Shape, "/cost"},
		{"unknown text of the schema", `"default":"x"`, `"default":"x","x-hint":"Use me."`, Text,
			"/inputSchema/properties/a/x-hint"},
		{"title of the annotations", `"title":"An"`, `"title":"Bn"`, Text, "/annotations/title"},
		{"read only", `"readOnlyHint":true`, `"readOnlyHint":false`, Promise,
			"/annotations/destructiveHint"},
		{"read only removed", `"readOnlyHint":true,`, ``, Promise,
			"/annotations/destructiveHint"},
		{"read only without a boolean", `"readOnlyHint":true`, `"readOnlyHint":"true"`, Promise,
			"/annotations/destructiveHint"},
		{"open world", `"openWorldHint":false`, `"openWorldHint":true`, Promise,
			"/annotations/openWorldHint"},
		{"annotations removed", `"annotations":{"title":"An","readOnlyHint":true,` +
			`"openWorldHint":false},`, ``, Promise, "/annotations/destructiveHint"},
		{"annotations of another type", `"annotations":{`, `"annotations":[],"a2":{`, Shape, "/a2"},
		{"icons", `i.png`, `j.png`, Decoration, "/icons/0/src"},
		{"execution", `optional`, `required`, Decoration, "/execution/taskSupport"},
		{"_meta", `"_meta":{"a":1}`, `"_meta":{"a":2}`, Decoration, "/_meta/a"},
	} {
		if strings.Count(fullTool, c.old) != 1 {
			t.Fatalf("%s: %q is in the tool %d times", c.name, c.old,
				strings.Count(fullTool, c.old))
		}
		changes := item(t, Tool, fullTool).Compare(item(t, Tool,
			strings.Replace(fullTool, c.old, c.new, 1)))
		if len(changes) == 0 {
			t.Errorf("%s: no change", c.name)
			continue
		}
		first := changes[0]
		if first.Class != c.class || first.Pointer != c.pointer || first.Name != "t" ||
			first.Kind != Tool {
			t.Errorf("%s: first change %+v, want %s at %s", c.name, first, c.class, c.pointer)
		}
		if held := c.class != Decoration; first.Class.IsHeldBack() != held {
			t.Errorf("%s: held back %t, want %t", c.name, !held, held)
		}
	}
}

func TestWhatHasNoMeaningIsNoChange(t *testing.T) {
	for _, c := range []struct{ name, a, b string }{
		{"order of members", `{"name":"t","description":"d"}`, `{"description":"d","name":"t"}`},
		{"white space and escapes", `{"name":"t","description":"\u0064"}`,
			"{ \"name\" : \"t\",\n\"description\":\"d\" }"},
		{"order of required", `{"name":"t","inputSchema":{"required":["a","b"]}}`,
			`{"name":"t","inputSchema":{"required":["b","a"]}}`},
		{"order of an enum", `{"name":"t","inputSchema":{"properties":{"p":{"enum":[2,"a",1]}}}}`,
			`{"name":"t","inputSchema":{"properties":{"p":{"enum":[1,2,"a"]}}}}`},
		{"order of types", `{"name":"t","outputSchema":{"type":["null","string"]}}`,
			`{"name":"t","outputSchema":{"type":["string","null"]}}`},
		{"defaults written out", `{"name":"t"}`, `{"name":"t","annotations":{"readOnlyHint":false,` +
			`"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`},
		{"empty annotations", `{"name":"t","annotations":{}}`, `{"name":"t"}`},
		{"a tool that reads is not destructive", `{"name":"t","annotations":{"readOnlyHint":true}}`,
			`{"name":"t","annotations":{"readOnlyHint":true,"destructiveHint":false}}`},
	} {
		a, b := item(t, Tool, c.a), item(t, Tool, c.b)
		if changes := a.Compare(b); len(changes) > 0 || a.Digest() != b.Digest() {
			t.Errorf("%s: changes %+v, digests %s and %s", c.name, changes, a.Digest(), b.Digest())
		}
	}
	for _, c := range []struct{ name, a, b string }{
		{"order of a default", `{"name":"t","inputSchema":{"default":["a","b"]}}`,
			`{"name":"t","inputSchema":{"default":["b","a"]}}`},
		{"order of a property named required",
			`{"name":"t","inputSchema":{"properties":{"required":["a","b"]}}}`,
			`{"name":"t","inputSchema":{"properties":{"required":["b","a"]}}}`},
		{"large numbers", `{"name":"t","inputSchema":{"maximum":9007199254740993}}`,
			`{"name":"t","inputSchema":{"maximum":9007199254740992}}`},
	} {
		if len(item(t, Tool, c.a).Compare(item(t, Tool, c.b))) == 0 {
			t.Errorf("%s: no change", c.name)
		}
	}
}

func TestATighterPromiseIsOnlyTold(t *testing.T) {
	a := item(t, Tool, `{"name":"t"}`)
	b := item(t, Tool, `{"name":"t","annotations":{"openWorldHint":false}}`)
	if got := fmt.Sprintf("%+v", a.Compare(b)); got != "[{Kind:tool Name:t Class:decoration "+
		"Pointer:/annotations/openWorldHint Before:true After:false}]" {
		t.Error(got)
	}
}

func TestTextsOfPromptsAndTemplatesAreHeldBack(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		a, b  string
		class Class
	}{
		{Prompt, `{"name":"p","arguments":[{"name":"a","description":"x"}]}`,
			`{"name":"p","arguments":[{"name":"a","description":"y"}]}`, Text},
		{Prompt, `{"name":"p","arguments":[{"name":"a"}]}`,
			`{"name":"p","arguments":[{"name":"a","required":true}]}`, Shape},
		{Template, `{"name":"n","uriTemplate":"a:{x}","description":"x"}`,
			`{"name":"n","uriTemplate":"a:{x}","description":"y"}`, Text},
		{Template, `{"name":"n","uriTemplate":"a:{x}"}`, `{"name":"m","uriTemplate":"a:{x}"}`,
			Shape},
		{Resource, `{"name":"n","uri":"a:1","size":1}`, `{"name":"n","uri":"a:1","size":2}`,
			Decoration},
		{Instructions, `"Be kind."`, `"Be unkind."`, Text},
	} {
		changes := item(t, c.kind, c.a).Compare(item(t, c.kind, c.b))
		if len(changes) != 1 || changes[0].Class != c.class {
			t.Errorf("%s to %s: %+v, want one change of class %s", c.a, c.b, changes, c.class)
		}
	}
}

func TestDefinitionsThatCannotBePinned(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		definition string
	}{
		{Tool, `[]`}, {Tool, `{}`}, {Tool, `{"name":7}`}, {Tool, `{"name":"a","name":"b"}`},
		{Tool, `{"name":"a"} x`}, {Tool, ``}, {Template, `{"name":"a"}`}, {Resource, `{"name":"a"}`},
		{Instructions, `{}`},
		{Tool, `{"name":"a","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`},
	} {
		if i, err := NewItem(c.kind, []byte(c.definition)); err == nil {
			t.Errorf("%s: pinned as %s", c.definition, i.Definition())
		}
	}
}

func FuzzCompare(f *testing.F) {
	f.Add(fullTool, `{"name":"t"}`)
	f.Add(`{"name":"t","annotations":{"readOnlyHint":1}}`, `{"name":"t","annotations":{"a":null}}`)
	f.Add(`{"name":"t","annotations":[]}`, `{"name":"t","annotations":{"readOnlyHint":true}}`)
	f.Fuzz(func(t *testing.T, x, y string) {
		a, err := NewItem(Tool, []byte(x))
		if err != nil {
			return
		}
		if again := item(t, Tool, string(a.Definition())); again.Digest() != a.Digest() {
			t.Errorf("the canonical form of %s has another digest", x)
		}
		b, err := NewItem(Tool, []byte(y))
		if err != nil || a.Name() != b.Name() {
			return
		}
		if same := a.Digest() == b.Digest(); same != (len(a.Compare(b)) == 0) ||
			same != (len(b.Compare(a)) == 0) {
			t.Errorf("equal digests %t, but changes %+v and %+v", same, a.Compare(b), b.Compare(a))
		}
	})
}
