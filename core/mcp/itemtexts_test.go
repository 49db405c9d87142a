package mcp_test

import (
	"fmt"
	"slices"
	"testing"

	"gatekit/core/mcp"
)

func TestItemTextsReadsTheTextOfEachItem(t *testing.T) {
	for _, c := range []struct {
		list, pointer, body string
		want                []string
	}{
		{"/tools", "/name", `{"tools":[{"name":"a"},{"x":{"name":"no"},"name":"b\u0021"}]}`,
			[]string{`0 {"name":"a"} "a" true`, `1 {"x":{"name":"no"},"name":"b\u0021"} "b!" true`}},
		{"/tools", "/name", `{"tools":[{},7,{"name":7},[{"name":"in"}],"name"]}`,
			[]string{`0 {} "" false`, `1 7 "" false`, `2 {"name":7} "" false`,
				`3 [{"name":"in"}] "" false`, `4 "name" "" false`}},
		{"/skills", "/frontmatter/name", `{"skills":[ {"frontmatter":{"name":"s"}} ]}`,
			[]string{`0 {"frontmatter":{"name":"s"}} "s" true`}},
		{"/uris", "", `{"uris":["a",null]}`, []string{`0 "a" "a" true`, `1 null "" false`}},
		{"/tools", "/name", `{"tools":{"name":"a"}}`, nil},
		{"/tools", "/name", `{"tools":[]}`, nil},
		{"/tools", "/name", `{}`, nil},
	} {
		m := mcp.NewResponse("1", []byte(c.body))
		var got, viaMessages []string
		m.ItemTexts(c.list, c.pointer, func(i int, raw []byte, text string, ok bool) bool {
			got = append(got, fmt.Sprintf("%d %s %q %v", i, raw, text, ok))
			return true
		})
		m.Items(c.list, func(i int, raw []byte) bool {
			text, ok := mcp.NewNotification("", raw).Text(c.pointer)
			viaMessages = append(viaMessages, fmt.Sprintf("%d %s %q %v", i, raw, text, ok))
			return true
		})
		if !slices.Equal(got, c.want) || !slices.Equal(got, viaMessages) {
			t.Errorf("%s in %s of %s:\ngot  %q\nwant %q\nas messages: %q", c.pointer, c.list,
				c.body, got, c.want, viaMessages)
		}
	}
	first := 0
	mcp.NewResponse("1", []byte(`{"a":[1,2]}`)).ItemTexts("/a", "", func(int, []byte, string,
		bool) bool {
		first++
		return false
	})
	if first != 1 {
		t.Errorf("yield was called %d times after it returned false, want 1 call", first)
	}
}
