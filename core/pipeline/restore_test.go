package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const secretValue = "s3cr3t-Value-0815"

// placeholderOf returns a placeholder with the number n in its digits.
func placeholderOf(n int) string {
	digits := []byte("aaaaaaaaaaaaaaaaaaaaaaaaaa")
	for i := len(digits) - 1; n > 0; i, n = i-1, n/26 {
		digits[i] = byte('a' + n%26)
	}
	return "[secret:key:" + string(digits) + "]"
}

// redactor is a stage that redacts the text of results, which is the value of placeholderOf(0), and
// names further values. It allows all other messages, and keeps them in seen.
type redactor struct {
	values []pipeline.Redacted
	seen   []string
}

func (r *redactor) Inspect(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	r.seen = append(r.seen, text(m))
	if m.Direction == mcp.ToServer || len(r.values) == 0 {
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	return pipeline.Verdict{Action: pipeline.Modify, Redacted: r.values,
		Edits: []mcp.Edit{mcp.Set("/text", mcp.Quote(r.values[0].Placeholder))}}, nil
}

// restoring is a pipeline with a redactor, and a later stage that sees what it lets pass.
type restoring struct {
	*pipeline.Pipeline
	first, later *redactor
	log          *record
}

func newRestoring(store *pipeline.RedactedValues, restore *pipeline.Restore,
	values ...pipeline.Redacted) *restoring {
	r := &restoring{first: &redactor{values: values}, later: &redactor{}, log: &record{}}
	r.Pipeline = pipeline.New(r.log, pipeline.Options{RedactedValues: store},
		pipeline.StageConfig{Name: "secrets", Stage: r.first, Restore: restore},
		pipeline.StageConfig{Name: "policy", Stage: r.later})
	return r
}

// send sends a result of the server "files" in the session s1 of the principal p1.
func (r *restoring) send(t *testing.T) {
	t.Helper()
	m := answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{"text":"`+secretValue+`"}}`)
	m.Principal = identity.FromID("p1")
	if _, err := r.Pass(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// callWith returns a tools/call of the same client to the same server.
func callWith(t *testing.T, arguments string) *mcp.Message {
	t.Helper()
	m := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":`+
		`{"name":"use","arguments":`+arguments+`}}`)
	m.Name, m.Principal = "use", identity.FromID("p1")
	return m
}

var redactedOnce = pipeline.Redacted{Placeholder: placeholderOf(0), Value: secretValue}

// TestRedactedValueIsRestored checks which requests get the value of a placeholder.
func TestRedactedValueIsRestored(t *testing.T) {
	sameServer := &pipeline.Restore{For: time.Hour}
	p := placeholderOf(0)
	for _, c := range []struct {
		name      string
		restore   *pipeline.Restore
		change    func(m *mcp.Message)
		arguments string
		want      string // the arguments that the server gets; "" if they stay
		findings  string
	}{
		{"the whole text", sameServer, nil, `{"a":"` + p + `"}`, `{"a":"` + secretValue + `"}`,
			"restored /arguments/a"},
		{"part of a text, twice", sameServer, nil, `{"a":"Bearer ` + p + `,` + p + `."}`,
			`{"a":"Bearer ` + secretValue + `,` + secretValue + `."}`, "restored /arguments/a"},
		{"nested", sameServer, nil, `{"a":[1,{"b":["` + p + `"]}],"c":true}`,
			`{"a":[1,{"b":["` + secretValue + `"]}],"c":true}`, "restored /arguments/a/1/b/0"},
		{"several arguments", sameServer, nil, `{"a":"` + p + `","b":"x","c":"` + p + `"}`,
			`{"a":"` + secretValue + `","b":"x","c":"` + secretValue + `"}`,
			"restored /arguments/a, restored /arguments/c"},
		{"the name of a member", sameServer, nil, `{"` + p + `":"x"}`, "", ""},
		{"split over two arguments", sameServer, nil, `{"a":"` + p[:20] + `","b":"` + p[20:] +
			`"}`, "", ""},
		{"in an escape", sameServer, nil, `{"a":"\u005b` + p[1:] + `"}`, "", ""},
		{"another placeholder", sameServer, nil, `{"a":"` + placeholderOf(1) + `"}`, "",
			"not-restored /arguments/a"},
		{"other capitals", sameServer, nil, `{"a":"` + strings.ToUpper(p) + `"}`, "", ""},
		{"a short placeholder", sameServer, nil, `{"a":"[secret:key:12345678]"}`, "", ""},
		{"another session", sameServer, func(m *mcp.Message) { m.Session = "s2" },
			`{"a":"` + p + `"}`, "", "not-restored /arguments/a"},
		{"another principal", sameServer,
			func(m *mcp.Message) { m.Principal = identity.FromID("p2") },
			`{"a":"` + p + `"}`, "", "not-restored /arguments/a"},
		{"another server", sameServer, func(m *mcp.Message) { m.Server = "mail" },
			`{"a":"` + p + `"}`, "", "not-restored /arguments/a"},
		{"no server", sameServer, func(m *mcp.Message) { m.Server = "" },
			`{"a":"` + p + `"}`, "", ""},
		{"an entitled tool of another server",
			&pipeline.Restore{For: time.Hour, Tools: []string{"mail/us*"}},
			func(m *mcp.Message) { m.Server = "mail" }, `{"a":"` + p + `"}`,
			`{"a":"` + secretValue + `"}`, "restored /arguments/a"},
		{"a tool that is not entitled",
			&pipeline.Restore{For: time.Hour, Tools: []string{"mail/used", "mail/send", "mai*",
				"ma/il*"}},
			func(m *mcp.Message) { m.Server = "mail" }, `{"a":"` + p + `"}`, "",
			"not-restored /arguments/a"},
		{"a request that is no call", sameServer,
			func(m *mcp.Message) { m.Method = "prompts/get" }, `{"a":"` + p + `"}`, "", ""},
		{"restore is off", nil, nil, `{"a":"` + p + `"}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRestoring(nil, c.restore, redactedOnce)
			r.send(t)
			m := callWith(t, c.arguments)
			if c.change != nil {
				c.change(m)
			}
			passed, err := r.Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			before := text(passed.Message())
			written, _ := passed.Restoration().Apply(passed.Message()).Get("/arguments")
			want := c.want
			if want == "" {
				want = c.arguments
			}
			if string(written) != want {
				t.Errorf("the server gets %s, want %s", written, want)
			}
			o := r.log.last(t)
			var findings []string
			for _, s := range o.Steps {
				for _, f := range s.Findings {
					findings = append(findings, f.Type+" "+f.Pointer)
				}
			}
			if got := strings.Join(findings, ", "); got != c.findings {
				t.Errorf("the record has the findings %q, want %q", got, c.findings)
			}
			if got, want := o.Action == "restore", c.want != ""; got != want {
				t.Errorf("the action is %s, restored: %v", o.Action, want)
			}
			// nobody but the server gets the value
			for what, got := range map[string]string{"the passed message": before,
				"the record": fmt.Sprintf("%+v %s %s", o.Steps, text(o.Before), text(o.After)),
				"the stages": strings.Join(append(r.first.seen[1:], r.later.seen[1:]...), "\n")} {
				if strings.Contains(got, secretValue) {
					t.Errorf("%s contains the value: %s", what, got)
				}
			}
		})
	}
}

// TestRestoredMessageKeepsEditsOfItsConnection checks that adapters can edit a message whose values
// are restored later.
func TestRestoredMessageKeepsEditsOfItsConnection(t *testing.T) {
	r := newRestoring(nil, &pipeline.Restore{For: time.Hour}, redactedOnce)
	r.send(t)
	passed, err := r.Pass(t.Context(), callWith(t, `{"a":"`+placeholderOf(0)+`"}`))
	if err == nil {
		passed, err = passed.WithID("99").Edit(mcp.Set("/_meta/x", []byte("1")))
	}
	if err == nil {
		passed, err = passed.RewriteNames(func(_ mcp.NamePlace, name string) (string, error) {
			return name + "2", nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	got := text(passed.Restoration().Apply(passed.Message()))
	for _, want := range []string{`"id":99`, `"x":1`, `"name":"use2"`, `"a":"` + secretValue + `"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the server gets %s, want %s in it", got, want)
		}
	}
}

func TestRedactedValueExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestoring(nil, &pipeline.Restore{For: time.Hour}, redactedOnce)
		arguments := `{"a":"` + placeholderOf(0) + `"}`
		want := func(when string, isRestored bool) {
			t.Helper()
			passed, err := r.Pass(t.Context(), callWith(t, arguments))
			if err != nil {
				t.Fatal(err)
			}
			got := text(passed.Restoration().Apply(passed.Message()))
			if strings.Contains(got, secretValue) != isRestored {
				t.Errorf("%s: the server gets %s, want it restored: %v", when, got, isRestored)
			}
		}
		r.send(t)
		time.Sleep(40 * time.Minute)
		want("after 40 minutes", true)
		r.send(t) // the same value again
		time.Sleep(40 * time.Minute)
		want("40 minutes after the second result", true)
		time.Sleep(20 * time.Minute)
		want("an hour after the second result", false)
	})
}

// TestSettingsOfReload checks that a new pipeline has the values of the one before, and applies its
// own settings.
func TestSettingsOfReload(t *testing.T) {
	for _, c := range []struct {
		name    string
		restore *pipeline.Restore
		server  string
		want    bool
	}{
		{"the same settings", &pipeline.Restore{For: time.Hour}, "files", true},
		{"off", nil, "files", false},
		{"another tool is entitled", &pipeline.Restore{For: time.Hour,
			Tools: []string{"mail/use"}}, "mail", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var store pipeline.RedactedValues
			newRestoring(&store, &pipeline.Restore{For: time.Hour}, redactedOnce).send(t)
			m := callWith(t, `{"a":"`+placeholderOf(0)+`"}`)
			m.Server = c.server
			passed, err := newRestoring(&store, c.restore).Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			got := text(passed.Restoration().Apply(passed.Message()))
			if strings.Contains(got, secretValue) != c.want {
				t.Errorf("the server gets %s, want it restored: %v", got, c.want)
			}
		})
	}
}

// TestRedactedValuesAreBounded checks that one server cannot make Gatekit forget the values of
// another server, and that the oldest values are forgotten.
func TestRedactedValuesAreBounded(t *testing.T) {
	var store pipeline.RedactedValues
	restore := &pipeline.Restore{For: time.Hour}
	newRestoring(&store, restore, redactedOnce).send(t)
	var flood []pipeline.Redacted
	for i := range 1000 {
		flood = append(flood, pipeline.Redacted{Placeholder: placeholderOf(i + 1),
			Value: strings.Repeat("x", 1100) + secretValue})
	}
	flood = append(flood, pipeline.Redacted{Placeholder: placeholderOf(5000),
		Value: "beyond the limit of one message " + secretValue})
	r := newRestoring(&store, restore, flood...)
	m := answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{"text":"x"}}`)
	m.Principal, m.Server = identity.FromID("p1"), "flood"
	if _, err := r.Pass(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, server string
		n            int
		want         bool
	}{
		{"the value of the other server", "files", 0, true},
		{"the newest value", "flood", 1000, true},
		{"the oldest value", "flood", 1, false},
		{"a value beyond the limit of a message", "flood", 5000, false},
	} {
		m := callWith(t, `{"a":"`+placeholderOf(c.n)+`"}`)
		m.Server = c.server
		passed, err := r.Pass(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		got := text(passed.Restoration().Apply(passed.Message()))
		if strings.Contains(got, secretValue) != c.want {
			t.Errorf("%s: restored: %v, want %v", c.name, !c.want, c.want)
		}
	}
}

// TestTooManyPlaceholdersAreDenied checks that a small request cannot become a huge one.
func TestTooManyPlaceholdersAreDenied(t *testing.T) {
	long := pipeline.Redacted{Placeholder: placeholderOf(1), Value: strings.Repeat("x", 60<<10)}
	r := newRestoring(nil, &pipeline.Restore{For: time.Hour}, redactedOnce, long)
	r.send(t)
	for _, c := range []struct {
		name        string
		placeholder string
		times       int
		want        bool
	}{
		{"1000 short values", placeholderOf(0), 1000, true},
		{"1001 short values", placeholderOf(0), 1001, false},
		{"17 long values", placeholderOf(1), 17, true},
		{"18 long values", placeholderOf(1), 18, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			passed, err := r.Pass(t.Context(), callWith(t, `{"a":["`+
				strings.Repeat(c.placeholder+`","`, c.times)+`"]}`))
			if c.want {
				if err != nil {
					t.Error(err)
				}
				return
			}
			d := denied(t, passed, err)
			if d.Stage != "secrets" || !strings.Contains(d.Reason, "placeholders") {
				t.Errorf("denied by %q: %q, want a reason about placeholders", d.Stage, d.Reason)
			}
			if o := r.log.last(t); o.Action != "deny" || o.After != nil {
				t.Errorf("the record has the action %s, want deny", o.Action)
			}
		})
	}
}

func TestIsPlaceholder(t *testing.T) {
	for s, want := range map[string]bool{
		placeholderOf(77):                         true,
		"[secret:a-1:abcdefghijklmnopqrstuvwx27]": true,
		"[secret::abcdefghijklmnopqrstuvwxyz]":    false,
		"[secret:A:abcdefghijklmnopqrstuvwxyz]":   false,
		"[secret:a:abcdefghijklmnopqrstuvwxy]":    false,
		"[secret:a:abcdefghijklmnopqrstuvwxyz2]":  false,
		"[secret:a:abcdefghijklmnopqrstuvwxy1]":   false,
		"[secret:a:12345678]":                     false,
		"secret:a:abcdefghijklmnopqrstuvwxyz":     false,
		"":                                        false,
		"[secret:" + strings.Repeat("a", 200) + ":abcdefghijklmnopqrstuvwxyz]": false,
	} {
		if got := pipeline.IsPlaceholder(s); got != want {
			t.Errorf("IsPlaceholder(%q) = %v, want %v", s, got, want)
		}
	}
}
