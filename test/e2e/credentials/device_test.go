package credentials

import (
	"strings"
	"testing"

	"gatekit/test/harness"
)

// TestUserLogsInOnAnotherDevice logs in with a code at a certified authorization server, while
// gatekit runs.
func TestUserLogsInOnAnotherDevice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at       authorizationServer
		settings string
	}{{oidcProvider, preRegistered}, {oidcProvider, "register = true"},
		{zitadelOIDC, preRegistered}} {
		t.Run(string(tt.at)+", "+tt.settings, func(t *testing.T) {
			t.Parallel()
			a := tt.at.start(t, 3600, 3600)
			p := protectedBy(t, a, false)
			g := start(t, oauth(p, pinned(a), tt.settings)+harness.ScriptedServer("other"))
			c := connect(t, g, harness.Revisions[0])
			harness.Handshake(t, c)
			wantNoLogin(t, c, "gatekit auth login box")

			mark := c.Mark()
			last, out, code := runLogIn(t, g.Dir, []string{"box", "--device"},
				func(page, code string) string { return a.enterCode(page, code, "ann") })
			if code != 0 || !strings.Contains(out, "logged in to box as the local user") {
				t.Fatalf("exit code %d\n%s\nthe last page is %s", code, out, last)
			}
			awaitChange(t, c, mark)
			wantUser(t, c, "ann")
			if n := actions(g)["login"]; n != 1 {
				t.Errorf("got %d records of a login, want 1", n)
			}
			wantHidden(t, g, p, out)
		})
	}
}
