package policies

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestChangeOfEraOnAPipeKeepsLabels sends requests of one era and then of the other era on one
// pipe. A pipe is one session for both eras, so its labels stay, whether they are kept by session
// or by principal.
func TestChangeOfEraOnAPipeKeepsLabels(t *testing.T) {
	rules := harness.LibraryRules(map[string]string{
		"flow/exfiltration": "private = { tools = [\"self\"] }\nuntrusted = { tools = [\"log\"] " +
			"}\negress = { tools = [\"echo\"] }",
	})
	for _, labels := range []string{"session", "principal"} {
		for _, eras := range [][2]string{{"2025-11-25", mcptest.Modern},
			{mcptest.Modern, "2025-11-25"}} {
			t.Run(fmt.Sprint(labels, " ", eras), func(t *testing.T) {
				config := harness.ScriptedServer("box") + strings.Replace(rules, "[policy]\n",
					fmt.Sprintf("[policy]\nlabels = %q\n", labels), 1)
				_, c := harness.SpawnStdio(t, config, eras[0])
				harness.Handshake(t, c)
				harness.CallTool(t, c, "box__echo", `{}`)
				harness.CallTool(t, c, "box__self", `{}`)
				harness.CallTool(t, c, "box__log", `{}`)
				harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
				c.Revision = eras[1]
				harness.Handshake(t, c)
				harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
			})
		}
	}
}
