package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionNamesTheCommit(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting {
		return debug.BuildSetting{Key: key, Value: value}
	}
	commit := []debug.BuildSetting{setting("vcs", "git"), setting("vcs.revision", "0123abc"),
		setting("vcs.time", "2026-11-28T01:02:03Z")}
	for _, c := range []struct {
		name       string
		info       *debug.BuildInfo
		text, json string // how the output begins
	}{
		{"no build information", nil, "gatekit (devel)\ngo", `{"version":"(devel)","dirty":false,`},
		{"built without the repository", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			"gatekit (devel)\ngo", `{"version":"(devel)","dirty":false,`},
		{"a release that go install fetched",
			&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "gatekit v1.2.3\ngo", `{"version":"v1.2.3","dirty":false,`},
		{"a commit", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"},
			Settings: append(commit[:3:3], setting("vcs.modified", "false"))},
			"gatekit v1.2.3\ncommit 0123abc, 2026-11-28T01:02:03Z\ngo",
			`{"version":"v1.2.3","commit":"0123abc","time":"2026-11-28T01:02:03Z","dirty":false,`},
		{"changed files", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3+dirty"},
			Settings: append(commit[:3:3], setting("vcs.modified", "true"))},
			"gatekit v1.2.3+dirty\ncommit 0123abc, 2026-11-28T01:02:03Z, dirty\ngo",
			`{"version":"v1.2.3+dirty","commit":"0123abc","time":"2026-11-28T01:02:03Z",` +
				`"dirty":true,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text, json strings.Builder
			b := newBuild(c.info)
			if err := b.write(&text); err != nil {
				t.Fatal(err)
			}
			if err := printJSON(&json, b); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(text.String(), c.text) {
				t.Errorf("got the text %q, want it to begin with %q", &text, c.text)
			}
			if !strings.HasPrefix(json.String(), c.json) {
				t.Errorf("got the JSON %s, want it to begin with %s", &json, c.json)
			}
			if want := `"go":"` + runtime.Version() + `","platform":"`; !strings.Contains(
				json.String(), want) {
				t.Errorf("got the JSON %s, want it to contain %s", &json, want)
			}
		})
	}
}
