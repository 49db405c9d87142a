package tools_test

import (
	"strings"
	"testing"

	"gatekit/plugins/builtin/tools"
)

func TestInvalidConfiguration(t *testing.T) {
	tests := []struct {
		name, config string
		want         []string // parts of the error
	}{
		{"not JSON", `{`, []string{"EOF"}},
		{"nothing to do", `{}`, []string{`nothing to do: set "tools", "prompts" or "resources"`}},
		{"empty section", `{"tools":{}}`,
			[]string{`tools: nothing to do: set "allow", "hide" or "change"`}},
		{"unknown option", `{"tools":{"alow":["a"]}}`, []string{"alow"}},
		{"list of tools, the format of the first Gatekit", `{"tools":[{"tool":"a"}]}`,
			[]string{"/tools"}},
		{"unknown option of a change", `{"tools":{"change":[{"name":"a","schema":{}}]}}`,
			[]string{"schema"}},
		{"duplicate option", `{"tools":{"allow":["a"]},"tools":{"allow":["*"]}}`,
			[]string{"duplicate"}},
		{"null for a list", `{"tools":{"allow":null}}`,
			[]string{"/tools/allow", "null is not a list"}},
		{"empty pattern", `{"tools":{"allow":["a",""]}}`,
			[]string{`tools.allow[1]: an empty pattern`}},
		{"template as a pattern", `{"resources":{"hide":["file:///{path}"]}}`,
			[]string{`resources.hide[0]: "file:///{path}" is a URI template`,
				"write * in place of"}},
		{"empty change", `{"tools":{"change":[{"name":"a"}]}}`,
			[]string{`tools.change[0]: nothing is changed: set "rename", "title" or "description"`}},
		{"change without a name", `{"prompts":{"change":[{"title":"a"}]}}`,
			[]string{`prompts.change[0].name: is missing`}},
		{"resource with a name", `{"resources":{"change":[{"name":"a","title":"a"}]}}`,
			[]string{`resources.change[0]: a resource is identified by "uri", not by "name"`}},
		{"tool with a URI", `{"tools":{"change":[{"name":"a","uri":"a","title":"a"}]}}`,
			[]string{`tools.change[0]: a tool is identified by "name", not by "uri"`}},
		{"two changes of one tool",
			`{"tools":{"change":[{"name":"a","title":"a"},{"name":"a","rename":"b"}]}}`,
			[]string{`tools.change[1].name: "a" is changed above`}},
		{"change of a hidden tool",
			`{"tools":{"hide":["a*"],"change":[{"name":"ab","title":"a"}]}}`,
			[]string{`tools.change[0].name: "ab" is hidden`}},
		{"change of a tool that is not allowed",
			`{"tools":{"allow":["b"],"change":[{"name":"ab","rename":"b"}]}}`,
			[]string{`tools.change[0].name: "ab" is hidden`}},
		{"rename to the same name", `{"tools":{"change":[{"name":"a","rename":"a"}]}}`,
			[]string{`rename tool "a": the new name is the same`}},
		{"two tools with one name",
			`{"tools":{"change":[{"name":"a","rename":"x"},{"name":"b","rename":"x"}]}}`,
			[]string{`rename tool "b" to "x": "a" gets that name too`}},
		{"rename to the old name of a renamed prompt",
			`{"prompts":{"change":[{"name":"a","rename":"b"},{"name":"b","rename":"c"}]}}`,
			[]string{`rename prompt "a" to "b": that is the server's name of another prompt`}},
		{"rename to the name of a changed tool",
			`{"tools":{"change":[{"name":"a","rename":"b"},{"name":"b","title":"B"}]}}`,
			[]string{`tools.change[0].rename: "b" is the server's own name of another visible tool`}},
		{"rename to an allowed name",
			`{"tools":{"allow":["a","b"],"change":[{"name":"a","rename":"b"}]}}`,
			[]string{`tools.change[0].rename: "b" is the server's own name of another visible tool`}},
		{"invalid new name",
			`{"tools":{"change":[{"name":"a","rename":"b c"},{"name":"b","rename":""},{"name":"c","rename":"` + strings.Repeat("x", 129) + `"}]}}`,
			[]string{`tools.change[0].rename: "b c" is not a valid name`,
				`tools.change[1].rename`, `tools.change[2].rename`}},
		{"several mistakes", `{"tools":{"allow":[""]},"resources":{"hide":["{"]}}`,
			[]string{"tools.allow[0]", "resources.hide[0]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tools.Plugin().New([]byte(tt.config))
			if err == nil || s != nil {
				t.Fatalf("got the stage %v and the error %v, want only an error", s, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got the error\n%v\nwant an error with %s", err, want)
				}
			}
		})
	}
}

func TestLongestNewName(t *testing.T) {
	if _, err := tools.Plugin().New([]byte(`{"tools":{"change":[{"name":"a","rename":"` +
		strings.Repeat("x", 128) + `"}]}}`)); err != nil {
		t.Errorf("a new name of 128 characters: %v", err)
	}
}
