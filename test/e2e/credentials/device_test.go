package credentials

import (
	"bufio"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/harness"
)

var userCode = regexp.MustCompile(`enter the code (\S+):`)

// TestUserLogsInOnAnotherDevice logs in with a code at a certified authorization server, while
// gatekit runs.
func TestUserLogsInOnAnotherDevice(t *testing.T) {
	for _, settings := range []string{preRegistered, "register = true"} {
		t.Run(settings, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			g := start(t, oauth(p, pinned(a), settings)+harness.ScriptedServer("other"))
			c := connect(t, g, harness.Revisions[0])
			harness.Handshake(t, c)
			wantNoLogin(t, c, "gatekit auth login box")

			mark := c.Mark()
			cmd := command(t, g.Dir, "auth", "login", "box", "--device")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr harness.Output
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			var code, last string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				line := lines.Text()
				fmt.Fprintln(&text, line)
				if m := userCode.FindStringSubmatch(line); m != nil {
					code = m[1]
				}
				if strings.HasPrefix(line, "  http") && last == "" {
					last = a.enterCode(strings.TrimSpace(line), code, "ann")
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s%s\nthe last page is %s", err, text.String(), stderr.String(), last)
			}
			if !strings.Contains(text.String(), "logged in to box as the local user") {
				t.Errorf("got the output %s", text.String())
			}
			awaitChange(t, c, mark)
			wantUser(t, c, "ann")
			if n := actions(g)["login"]; n != 1 {
				t.Errorf("got %d records of a login, want 1", n)
			}
			wantHidden(t, g, p, text.String(), stderr.String())
		})
	}
}
