package tools_test

import (
	"strings"
	"testing"

	"gatekit/plugins/builtin/tools"
)

func TestAConfigurationThatIsRefused(t *testing.T) {
	tests := []struct {
		name, config string
		want         []string // all in the error
	}{
		{"no JSON", `{`, []string{"EOF"}},
		{"nothing to do", `{}`, []string{`nothing to do: give it "tools", "prompts" or "resources"`}},
		{"a section with nothing to do", `{"tools":{}}`,
			[]string{`tools: nothing to do: give it "allow", "hide" or "change"`}},
		{"an unknown option", `{"tools":{"alow":["a"]}}`, []string{"alow"}},
		{"the original's list of tools", `{"tools":[{"tool":"a"}]}`, []string{"/tools"}},
		{"an unknown option of a change", `{"tools":{"change":[{"name":"a","schema":{}}]}}`,
			[]string{"schema"}},
		{"a name twice", `{"tools":{"allow":["a"]},"tools":{"allow":["*"]}}`,
			[]string{"duplicate"}},
		{"null for a list, which is no absent one", `{"tools":{"allow":null}}`,
			[]string{"/tools/allow", "null is no list"}},
		{"an empty pattern", `{"tools":{"allow":["a",""]}}`,
			[]string{`tools.allow[1]: an empty pattern`}},
		{"a template for a pattern", `{"resources":{"hide":["file:///{path}"]}}`,
			[]string{`resources.hide[0]: "file:///{path}" is a URI template`, "write *"}},
		{"a change of nothing", `{"tools":{"change":[{"name":"a"}]}}`,
			[]string{`tools.change[0]: nothing is changed: give it "rename", "title" or "description"`}},
		{"a change without a name", `{"prompts":{"change":[{"title":"a"}]}}`,
			[]string{`prompts.change[0].name: missing`}},
		{"a resource by a name", `{"resources":{"change":[{"name":"a","title":"a"}]}}`,
			[]string{`resources.change[0]: it is said by its "uri"`}},
		{"a tool by a URI", `{"tools":{"change":[{"name":"a","uri":"a","title":"a"}]}}`,
			[]string{`tools.change[0]: it is said by its "name"`}},
		{"one tool changed twice",
			`{"tools":{"change":[{"name":"a","title":"a"},{"name":"a","rename":"b"}]}}`,
			[]string{`tools.change[1].name: "a" is changed above`}},
		{"a change of what is hidden",
			`{"tools":{"hide":["a*"],"change":[{"name":"ab","title":"a"}]}}`,
			[]string{`tools.change[0].name: "ab" is hidden`}},
		{"a change of what is not allowed",
			`{"tools":{"allow":["b"],"change":[{"name":"ab","rename":"b"}]}}`,
			[]string{`tools.change[0].name: "ab" is hidden`}},
		{"a rename to the same name", `{"tools":{"change":[{"name":"a","rename":"a"}]}}`,
			[]string{`rename tool "a": the new name is the same`}},
		{"two tools of one name",
			`{"tools":{"change":[{"name":"a","rename":"x"},{"name":"b","rename":"x"}]}}`,
			[]string{`rename tool "b" to "x": "a" has that name`}},
		{"a rename onto another's name",
			`{"prompts":{"change":[{"name":"a","rename":"b"},{"name":"b","rename":"c"}]}}`,
			[]string{`rename prompt "a" to "b": that is the server's name of another one`}},
		{"a rename onto the name of a tool that is only described",
			`{"tools":{"change":[{"name":"a","rename":"b"},{"name":"b","title":"B"}]}}`,
			[]string{`tools.change[0].rename: "b" is the server's name of another one`}},
		{"a rename onto a name that is allowed in full",
			`{"tools":{"allow":["a","b"],"change":[{"name":"a","rename":"b"}]}}`,
			[]string{`tools.change[0].rename: "b" is the server's name of another one`}},
		{"a name that clients do not take",
			`{"tools":{"change":[{"name":"a","rename":"b c"},{"name":"b","rename":""},{"name":"c","rename":"` + strings.Repeat("x", 129) + `"}]}}`,
			[]string{`tools.change[0].rename: "b c" is no name that clients take`,
				`tools.change[1].rename`, `tools.change[2].rename`}},
		{"all at once", `{"tools":{"allow":[""]},"resources":{"hide":["{"]}}`,
			[]string{"tools.allow[0]", "resources.hide[0]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tools.Plugin().New([]byte(tt.config))
			if err == nil || s != nil {
				t.Fatalf("stage %v, error %v", s, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwant one with %s", err, want)
				}
			}
		})
	}
}
