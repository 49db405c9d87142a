package shared

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

var placeholderPattern = regexp.MustCompile(`\[secret:[a-z0-9-]+:[a-z2-7]{26}\]`)

// secretBox serves a server whose tool self returns a password. It keeps the arguments that its
// other tools got.
type secretBox struct {
	url string

	mu  sync.Mutex
	got []string
}

const boxPassword = "Xy7-kq29vLmw"

func startSecretBox(t *testing.T) *secretBox {
	box := &secretBox{}
	s := mcptest.Toolbox("box", mcptest.Modern)
	s.Handle["tools/call"] = func(c *mcptest.Call) {
		text := "DB_PASSWORD=" + boxPassword
		if mcptest.Text(c.Params, "name") != "self" {
			text = mcptest.Text(c.Params, "arguments", "tag")
			box.mu.Lock()
			box.got = append(box.got, text)
			box.mu.Unlock()
		}
		quoted, _ := json.Marshal(text)
		c.Result(`{"resultType":"complete","content":[{"type":"text","text":` + string(quoted) +
			`}]}`)
	}
	box.url = harness.ServeWithoutCredentials(t, s)
	return box
}

// last returns the argument that the server got last.
func (b *secretBox) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.got) == 0 {
		return ""
	}
	return b.got[len(b.got)-1]
}

// A value that one replica redacted is restored at another one, for the same principal and the same
// server. Without the state, the server gets the placeholder.
func TestReplicasRestoreEachOthersValues(t *testing.T) {
	server, box, other, i := redistest.Start(t), startSecretBox(t), startSecretBox(t),
		issuertest.Start(t)
	config := "public_url = \"https://gatekit.example\"\n" + sharedTable(server.Addr,
		`timeout = "5s"`) + fmt.Sprintf("[listen.auth]\nscopes = [\"mcp\"]\n"+
		"[[listen.auth.issuer]]\nissuer = %q\n", i.URL) +
		harness.Builtin("secrets", `restore = "same-server"`) +
		harness.HTTPServer("own", box.url) + harness.HTTPServer("foreign", other.url)
	var all []*harness.Gatekit
	for range 2 {
		all = append(all, harness.StartHTTP(t, config))
	}
	ann, annThere := connectUser(t, all[0], i, "ann", mcptest.Modern),
		connectUser(t, all[1], i, "ann", mcptest.Modern)
	bob := connectUser(t, all[1], i, "bob", mcptest.Modern)
	call := func(u user, tool, tag string) string {
		t.Helper()
		m := u.do("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"tag":%q}}`, tool, tag))
		if m.Error != nil || strings.Contains(string(m.Raw), boxPassword) {
			t.Errorf("%s got %s, want a result without the password", tool, m.Raw)
		}
		return string(m.Raw)
	}
	p := placeholderPattern.FindString(call(ann, "own__self", ""))
	if p == "" {
		t.Fatal("the result of self has no placeholder")
	}
	for _, tt := range []struct {
		name, tool string
		user       user
		box        *secretBox
		want       string // what the server gets
	}{
		{"the other replica", "own__echo", annThere, box, boxPassword},
		{"another principal", "own__echo", bob, box, p},
		{"another server", "foreign__echo", annThere, other, p},
		{"again", "own__echo", annThere, box, boxPassword},
	} {
		result := call(tt.user, tt.tool, p)
		if got := tt.box.last(); got != tt.want {
			t.Errorf("%s: the server got %q, want %q", tt.name, got, tt.want)
		}
		if !strings.Contains(result, p) {
			t.Errorf("%s: the client got %s, want the placeholder again", tt.name, result)
		}
	}
	if keys := server.Do(t, "KEYS", "*"); strings.Contains(keys, "secret") ||
		strings.Contains(keys, "ann") {
		t.Errorf("the keys tell what they are for: %s", keys)
	}
	all[1].WantRecords("to_server request tools/call own echo restore",
		"to_client response tools/call own echo modify", // the server had the password
		"to_server request tools/call own echo pass",
		"to_server request tools/call foreign echo pass",
		"to_server request tools/call own echo restore")
	all[1].WantReasons("restored 1 redacted value")

	away := kill(t, server)
	for _, tt := range []struct {
		name, tool, tag string
		user            user
		want            string // what the server has got last; "" if that does not matter
	}{
		{"the other replica", "own__echo", p, annThere, p},
		{"a value that cannot be shared, which is redacted all the same", "own__self", "", ann, ""},
		{"the replica that knows the value", "own__echo", p, ann, boxPassword},
	} {
		if !away.isShort() {
			t.Log("the machine is too busy to check what is restored without the state")
			return
		}
		result := call(tt.user, tt.tool, tt.tag)
		if got := box.last(); tt.want != "" && got != tt.want {
			t.Errorf("without the state, %s: the server got %q, want %q", tt.name, got, tt.want)
		}
		if !strings.Contains(result, p) {
			t.Errorf("without the state, %s: the client got %s, want the placeholder", tt.name,
				result)
		}
	}
	if log := all[0].Stderr.String(); !strings.Contains(log, "redacted values not shared") {
		t.Errorf("the log of the first replica is %s, want that values are not shared", log)
	}
	if log := strings.Join(all[1].LogLines(), "\n"); !strings.Contains(log, `"not-restored"`) {
		t.Errorf("the audit log has no finding not-restored: %.300s", log)
	}
}
