package secrets_test

import (
	"errors"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/secrets"
	"gatekit/plugins/sdk"
)

const restoring = `{"restore":"same-server"}`

// resultOf returns a result of the server "files" in the session s1.
func resultOf(t *testing.T, body string) *mcp.Message {
	t.Helper()
	m := message(t, mcp.Response, mcp.ToClient, "tools/call", body)
	m.Session, m.Principal = "s1", identity.FromID("p1")
	return m
}

// redactedValues inspects a message and returns its text after the edits, and the values that may
// be restored, by their placeholder.
func redactedValues(t *testing.T, s sdk.Stage, m *mcp.Message) (text string,
	values map[string]string) {
	t.Helper()
	v := inspect(t, s, m)
	edited, err := m.Edit(v.Edits...)
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]string{}
	for _, r := range v.Redacted {
		if !pipeline.IsPlaceholder(r.Placeholder) {
			t.Errorf("%q is no placeholder", r.Placeholder)
		}
		values[r.Placeholder] = r.Value
	}
	return string(edited.Body()), values
}

// TestRestorableValues checks which redacted texts Gatekit may restore, and that putting the values
// back gives the original text.
func TestRestorableValues(t *testing.T) {
	const password = "hunter2-x9!"
	for _, c := range []struct {
		name   string
		config string
		change func(m *mcp.Message)
		body   string
		want   []string // the values; nil if no value can be restored
	}{
		{"a token in a text", restoring, nil, `{"content":[{"type":"text","text":"the key is ` +
			aws + `"}]}`, []string{aws}},
		{"a token in two places", restoring, nil, `{"a":"` + aws + `","b":["x ` + aws + `"]}`,
			[]string{aws}},
		{"two tokens", restoring, nil, `{"a":"` + aws + `","b":"` + github + `"}`,
			[]string{aws, github}},
		{"a private key", restoring, nil, `{"a":` + quoted(pem) + `}`, []string{pem}},
		{"a password", restoring, nil, `{"password":"` + password + `"}`, []string{password}},
		{"an error", restoring, func(m *mcp.Message) { m.Kind = mcp.Error },
			`{"code":-1,"message":"no: ` + aws + `"}`, []string{aws}},
		{"the name of a member", restoring, nil, `{"a":{"` + aws + `":1}}`, []string{aws}},
		{"a path after the word password", restoring, nil, `{"password":"/etc/shadow-x9!"}`, nil},
		{"a relative path", restoring, nil, `{"password":"a/../../etc/x9!"}`, nil},
		{"a home folder", restoring, nil, `{"password":"~root/x9!abc"}`, nil},
		{"a URL", restoring, nil, `{"password":"http://10.0.0.1/x9"}`, nil},
		{"a drive", restoring, nil, `{"password":"C:\\windows\\x9!"}`, nil},
		{"an option", restoring, nil, `{"password":"--upload=x9!abc"}`, nil},
		{"a path after the word Bearer", restoring, nil,
			`{"a":"Authorization: Bearer ../../home/u7/.ssh/id_rsa9x"}`, nil},
		// P./../y is below the folder, and with this value it is beside the folder.
		{"the end of a path", restoring, nil, `{"password":"aaaa1/."}`, nil},
		{"a folder", restoring, nil, `{"password":"aaaa1/"}`, nil},
		{"a file for curl", restoring, nil, `{"password":"@x9abc1"}`, nil},
		{"a comment", restoring, nil, `{"password":"#x9abc1"}`, nil},
		{"names of files", restoring, nil, `{"password":"x9a*"}`, nil},
		{"a command", restoring, nil, `{"password":"x9';id>a;'"}`, nil},
		{"a substitution", restoring, nil, `{"password":"x9$(id)"}`, nil},
		{"a member of JSON", restoring, nil, `{"password":"x9\",\"admin\":\"1"}`, nil},
		{"a sign that turns the text", restoring, nil, `{"password":"x9abc\u202e1"}`, nil},
		{"a password with signs", restoring, nil, `{"password":"p@ss:W0rd/x+y="}`,
			[]string{"p@ss:W0rd/x+y="}},
		{"a definition", restoring, func(m *mcp.Message) { m.Method = "tools/list" },
			`{"tools":[{"name":"t","description":"` + aws + `"}]}`, nil},
		{"instructions", restoring, func(m *mcp.Message) { m.Method = "initialize" },
			`{"instructions":"` + aws + `"}`, nil},
		{"instructions of a modern server", restoring,
			func(m *mcp.Message) { m.Method = "server/discover" },
			`{"instructions":"` + aws + `"}`, nil},
		{"no known server", restoring, func(m *mcp.Message) { m.Server = "" },
			`{"a":"` + aws + `"}`, nil},
		{"a message to a server", restoring,
			func(m *mcp.Message) { m.Direction = mcp.ToServer }, `{"a":"` + aws + `"}`, nil},
		{"off", `{}`, nil, `{"a":"` + aws + `"}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := resultOf(t, c.body)
			if c.change != nil {
				c.change(m)
			}
			text, values := redactedValues(t, newStage(t, c.config), m)
			if !strings.Contains(text, "[secret:") {
				t.Fatalf("nothing is redacted: %s", text)
			}
			if len(values) != len(c.want) {
				t.Errorf("the values %q can be restored, want %q", values, c.want)
			}
			got := map[string]bool{}
			for placeholder, value := range values {
				got[value] = true
				text = strings.ReplaceAll(text, placeholder, strings.Trim(quoted(value), `"`))
			}
			for _, want := range c.want {
				if !got[want] {
					t.Errorf("the values %q can be restored, want %q among them", values, want)
				}
			}
			if want := strings.Contains(text, "[secret:"); want != (c.want == nil) {
				t.Errorf("with the values put back, the message is %s", text)
			}
			if c.want != nil && text != c.body {
				t.Errorf("with the values put back, the message is %s, want %s", text, c.body)
			}
		})
	}
}

// TestEncodedValuesAreRestoredAsTheyWere checks that a placeholder stands for the text that it
// replaces, which may be an encoding of the secret.
func TestEncodedValuesAreRestoredAsTheyWere(t *testing.T) {
	const encoded = "dXNlcjpBS0lBUTdaMlhONFZMSFBLM002VA==" // user: and the value of aws
	_, values := redactedValues(t, newStage(t, restoring),
		resultOf(t, `{"a":"Basic `+encoded+`","b":"`+aws+`"}`))
	if len(values) != 2 {
		t.Fatalf("the values %q can be restored, want two", values)
	}
	for _, value := range values {
		if value != aws && value != encoded {
			t.Errorf("the value is %q, want %q or %q", value, aws, encoded)
		}
	}
}

// TestRestorablePlaceholderIsBound checks that a placeholder is the same for the same value of the
// same server and client, and differs otherwise.
func TestRestorablePlaceholderIsBound(t *testing.T) {
	s := newStage(t, restoring)
	placeholder := func(s sdk.Stage, change func(m *mcp.Message), value string) string {
		m := resultOf(t, `{"a":"`+value+`"}`)
		if change != nil {
			change(m)
		}
		_, values := redactedValues(t, s, m)
		for p := range values {
			return p
		}
		t.Fatal("no value can be restored")
		return ""
	}
	first := placeholder(s, nil, aws)
	if again := placeholder(s, func(m *mcp.Message) { m.Method = "resources/read" }, aws); again !=
		first {
		t.Errorf("the placeholder is %s and then %s, want it to stay", first, again)
	}
	for what, other := range map[string]string{
		"another value":   placeholder(s, nil, aws[:19]+"X"),
		"another session": placeholder(s, func(m *mcp.Message) { m.Session = "s2" }, aws),
		"another principal": placeholder(s,
			func(m *mcp.Message) { m.Principal = identity.FromID("p2") }, aws),
		"another server": placeholder(s, func(m *mcp.Message) { m.Server = "mail" }, aws),
		"another stage":  placeholder(newStage(t, restoring), nil, aws),
	} {
		if other == first {
			t.Errorf("%s has the same placeholder %s", what, first)
		}
	}
}

// TestPlaceholdersAreNotRedacted sends placeholders back in the places where the rules find
// secrets.
func TestPlaceholdersAreNotRedacted(t *testing.T) {
	s := newStage(t, `{"restore":"same-server","entropy":{"enabled":true}}`)
	_, values := redactedValues(t, s, resultOf(t, `{"a":"`+aws+`","password":"hunter2-x9!"}`))
	if len(values) != 2 {
		t.Fatalf("the values %q can be restored, want two", values)
	}
	for p := range values {
		for _, arguments := range []string{`{"a":"` + p + `"}`, `{"password":"` + p + `"}`,
			`{"api_key":"` + p + `"}`, `{"Authorization":"Bearer ` + p + `"}`,
			`{"text":"DB_PASSWORD=` + p + `\nAPI_KEY='` + p + `'\n"}`,
			`{"name":"API_TOKEN","value":"` + p + `"}`,
			`{"json":"{\"client_secret\": \"` + p + `\"}"}`,
			`{"url":"https://user:` + p + `@example.com/?token=` + p + `"}`,
			`{"secret":"` + p + `","key":"` + p + `"}`} {
			m := message(t, mcp.Request, mcp.ToServer, "tools/call",
				`{"name":"t","arguments":`+arguments+`}`)
			if v := inspect(t, s, m); v.Action != pipeline.Allow {
				t.Errorf("%s: the verdict is %+v, want it allowed", arguments, v)
			}
		}
		m := message(t, mcp.Request, mcp.ToServer, "tools/call",
			`{"name":"t","arguments":{"a":"`+p+`","password":"other-x9!z"}}`)
		if v := inspect(t, s, m); v.Action != pipeline.Modify {
			t.Errorf("a secret beside a placeholder: the verdict is %+v, want it redacted", v)
		}
	}
}

func TestRestorableValuesOfAMessageAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1100 {
		b.WriteString(`,"AKIAQ7Z2XN4VLHPK` + string([]byte{byte('A' + i%26),
			byte('A' + i/26%26), byte('P' + i/676), '7'}) + `"`)
	}
	text, values := redactedValues(t, newStage(t, restoring), resultOf(t, `{"a":[`+b.String()[1:]+
		`]}`))
	if len(values) > 1000 || len(values) < 900 {
		t.Errorf("%d values can be restored, want at most 1000, and most of them", len(values))
	}
	if strings.Contains(text, "AKIA") {
		t.Error("a key is not redacted")
	}
}

// newStageError returns the error of a stage with the configuration.
func newStageError(config string) error {
	_, err := secrets.Plugin().New([]byte(config))
	return err
}

func TestMistakesInRestore(t *testing.T) {
	for config, want := range map[string]string{
		`{"restore":"on"}`:                                                "restore: ",
		`{"restore":"same-server","restore_for":1}`:                       "restore_for",
		`{"restore":"same-server","restore_for":"0s"}`:                    "restore_for: ",
		`{"restore":"same-server","restore_for":"25h"}`:                   "restore_for: ",
		`{"restore":"entitled"}`:                                          "restore_tools: ",
		`{"restore":"same-server","restore_tools":["a/b"]}`:               "restore_tools: ",
		`{"restore":"entitled","restore_tools":["b"]}`:                    "restore_tools",
		`{"restore":"entitled","restore_tools":["*/b"]}`:                  "restore_tools",
		`{"restore":"entitled","restore_tools":["a/b*c"]}`:                "restore_tools",
		`{"restore":"same-server","action":"block"}`:                      "restore: ",
		`{"restore":"same-server","directions":["to_server"]}`:            "restore: ",
		`{"restore":"entitled","restore_tools":["a/b"],"action":"audit"}`: "restore: ",
	} {
		err := errors.Join(secrets.Plugin().Check([]byte(config)), newStageError(config))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", config, err, want)
		}
	}
	for _, config := range []string{restoring, `{"restore":"off","action":"block"}`,
		`{"restore":"entitled","restore_tools":["a/b*","c/d","e/*"],"restore_for":"90m"}`} {
		if err := errors.Join(secrets.Plugin().Check([]byte(config)),
			newStageError(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}
