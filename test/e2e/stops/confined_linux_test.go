package stops

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// A confined server can neither reach the control socket nor change the file of the stops.
func TestConfinedServerCannotResume(t *testing.T) {
	for _, level := range []string{"guard", "strict"} {
		t.Run(level, func(t *testing.T) {
			box := harness.StdioServer("box", []string{os.Args[0], "recording-server", "2025-11-25",
				os.DevNull}, "GORACE", "atexit_sleep_ms=0")
			state := filepath.Join(t.TempDir(), "state")
			t.Setenv("XDG_STATE_HOME", state)
			g, c := harness.StartStdio(t, box+fmt.Sprintf("[server.box.sandbox]\nlevel = %q\n",
				level)+harness.ScriptedServer("other")+audit, "2025-11-25")
			mustGatekit(t, g, "stop", "--server", "other", "--reason", "it is hostile")
			m := harness.CallTool(t, c, "box__attack", fmt.Sprintf(
				`{"tag":"a","state":%q,"gatekit":%q,"config":%q}`, state, peers.Gatekit(t),
				filepath.Join(g.Dir, "gatekit.toml")))
			if done := mcptest.Text(m.Result, "structuredContent", "done"); done != "" {
				t.Errorf("the confined server could: %s", done)
			}
			if m := harness.Request(t, c, "tools/call", `{"name":"other__echo"}`); stopOf(m) == "" {
				t.Errorf("after the attack, a call got %s", m.Raw)
			}
			if out := mustGatekit(t, g, "stop", "status"); !strings.Contains(out, "hostile") {
				t.Errorf("after the attack, gatekit stop status printed %s", out)
			}
		})
	}
}
