package plugins

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

const renaming = `tools = { hide = ["die"], change = [{ name = "echo", rename = "say", description = "Says it." }] }`

func TestToolsAreHiddenAndRenamed(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, harness.ScriptedServer("box")+harness.Builtin("tools",
				renaming), revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				list := string(harness.Request(t, c, "tools/list", `{}`).Raw)
				if strings.Contains(list, "box__die") || strings.Contains(list, "box__echo") ||
					!strings.Contains(list, `"name":"box__say"`) || !strings.Contains(list,
					`"Says it."`) {
					t.Errorf("the list is %s", list)
				}
				if m := harness.CallTool(t, c,
					"box__say", `{"tag":1}`); !strings.Contains(string(m.Raw),
					`\"name\":\"echo\"`) {
					t.Errorf("the server saw %s", m.Raw)
				}
				for _, hidden := range []string{"box__die", "box__echo"} {
					m := harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":%q}`, hidden))
					if string(mcptest.At(m.Error, "code")) != "-31000" || mcptest.Text(m.Error,
						"message") != "refused by policy" {
						t.Errorf("%s answered %s", hidden, m.Raw)
					}
				}
				g.WantRecords("to_server request tools/call box echo modify",
					"to_client response tools/call box echo pass",
					"to_server request tools/call box die deny",
					"to_client response tools/list box - modify")
			})
		})
	}
}

func TestAPluginThatIsKilledOrStoppedComesBack(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL,
		"stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.Builtin("tools",
				renaming)+"timeout = \"1s\"\n")
			pids := g.PluginPIDs()
			if len(pids) != 1 {
				t.Fatalf("%d plugin processes, want 1", len(pids))
			}
			end := g.CallRepeatedly(4, func(c *mcptest.Client) bool {
				m, err := c.Call(t.Context(), "tools/call", `{"name":"box__die"}`)
				if err != nil || !harness.IsDenied(m) { // else the hidden tool was called
					t.Errorf("what is hidden answered %s, %v", m.Raw, err)
					return false
				}
				m, err = c.Call(t.Context(), "tools/call", `{"name":"box__say"}`)
				if err != nil || m.Error != nil && !harness.IsDenied(m) {
					t.Errorf("a call answered %s, %v", m.Raw, err)
					return false
				}
				return true
			})
			syscall.Kill(pids[0], signal)
			harness.WaitUntilAtMost(t, "plugin processes that are not another", 0, func() int {
				for _, pid := range g.PluginPIDs() {
					if pid != pids[0] {
						return 0
					}
				}
				return 1
			})
			c := g.Client("2025-11-25")
			harness.WaitUntilAtMost(t, "calls refused", 0, func() int {
				if m := harness.Request(t, c, "tools/call", `{"name":"box__say"}`); m.Error != nil {
					return 1
				}
				return 0
			})
			end()
			g.WantRecords("- - - - - plugin_lost", "- - - - - plugin_restarted")
			if name == "stopped" { // three of them had it found out
				g.WantDenialError("no verdict within 1s")
			}
		})
	}
}

func TestAPluginIsReconfiguredWithoutLosingACall(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box")+harness.Builtin("tools", renaming),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit,
			c *mcptest.Client) {
			harness.Handshake(t, c)
			harness.StartWaitingCall(t, c, "box", `"w"`, "w")
			old := g.PluginPIDs()
			listen := ""
			if g.URL != "" {
				listen = fmt.Sprintf("[listen]\nhttp = %q\n",
					strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp"))
			}
			mark := c.Mark()
			g.Configure(listen + harness.ScriptedServer("box") + harness.Builtin("tools",
				`tools = { hide = ["log"] }`))
			if _, err := c.AwaitMethod(harness.Context(t), mark,
				"notifications/tools/list_changed"); err != nil {
				t.Fatalf("nothing told the client of the change: %v", err)
			}
			harness.CallTool(t, c, "box__echo", ``)
			if m := harness.Request(t, c,
				"tools/call", `{"name":"box__log"}`); string(mcptest.At(m.Error,
				"code")) != "-31000" {
				t.Errorf("what is hidden now answered %s", m.Raw)
			}
			if now := g.PluginPIDs(); len(now) != 1 || now[0] != old[0] {
				t.Errorf("the plugins' process was %v and is %v: it need not end for a change of "+
					"configuration", old, now)
			}
			// invalid: reported, and all stays
			g.Configure(listen + harness.ScriptedServer("box") + harness.Builtin("tools",
				`tools = { hid = ["log"] }`))
			g.WaitForLog(`did you mean \"hide\"`, 1)
			if m := harness.Request(t, c,
				"tools/call", `{"name":"box__log"}`); string(mcptest.At(m.Error,
				"code")) != "-31000" {
				t.Errorf("what was hidden before answered %s", m.Raw)
			}
			// the call that was under way all the time
			c.Notify("notifications/cancelled", `{"requestId":"w"}`)
			harness.CallTool(t, c, "box__cancelled", `{"tag":"w"}`)
			g.WantRecords("- - - - - reload", "to_server request tools/call box log deny")
		})
}
