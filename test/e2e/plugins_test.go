package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/mcptest"
)

// plugin is the configuration of a built-in; config is what stands in its inline table.
func plugin(use, config string) string {
	return fmt.Sprintf("[[plugin]]\nname = %q\nuse = %q\nconfig = { %s }\n", use, use, config)
}

const renaming = `tools = { hide = ["die"], change = [{ name = "echo", rename = "say", description = "Says it." }] }`

func TestToolsAreHiddenAndRenamed(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			front(t, box("box")+plugin("tools", renaming), revision, func(t *testing.T, g *gatekit,
				c *mcptest.Client) {
				open(t, c)
				list := string(ask(t, c, "tools/list", `{}`).Raw)
				if strings.Contains(list, "box__die") || strings.Contains(list, "box__echo") ||
					!strings.Contains(list, `"name":"box__say"`) || !strings.Contains(list,
					`"Says it."`) {
					t.Errorf("the list is %s", list)
				}
				if m := call(t, c, "box__say", `{"tag":1}`); !strings.Contains(string(m.Raw),
					`\"name\":\"echo\"`) {
					t.Errorf("the server saw %s", m.Raw)
				}
				for _, hidden := range []string{"box__die", "box__echo"} {
					m := ask(t, c, "tools/call", fmt.Sprintf(`{"name":%q}`, hidden))
					if string(mcptest.At(m.Error, "code")) != "-31000" || mcptest.Text(m.Error,
						"message") != "refused by policy" {
						t.Errorf("%s answered %s", hidden, m.Raw)
					}
				}
				g.recorded("to_server request tools/call box echo modify",
					"to_client response tools/call box echo pass",
					"to_server request tools/call box die deny",
					"to_client response tools/list box - modify")
			})
		})
	}
}

// pluginPids are the plugin processes of a gatekit.
func (g *gatekit) pluginPids() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		var pid, parent int
		var name, state string
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fmt.Sscanf(string(b), "%d %s %s %d", &pid, &name, &state, &parent)
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if parent == g.cmd.Process.Pid && bytes.Contains(line, []byte("\x00plugin\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestAPluginThatIsKilledOrStoppedComesBack(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL,
		"stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := overHTTP(t, box("box")+plugin("tools", renaming)+"timeout = \"1s\"\n")
			pids := g.pluginPids()
			if len(pids) != 1 {
				t.Fatalf("%d plugin processes, want 1", len(pids))
			}
			end := g.meanwhile(4, func(c *mcptest.Client) bool {
				m, err := c.Call(t.Context(), "tools/call", `{"name":"box__die"}`)
				if err != nil || !wasDenied(m) { // else the hidden tool was called
					t.Errorf("what is hidden answered %s, %v", m.Raw, err)
					return false
				}
				m, err = c.Call(t.Context(), "tools/call", `{"name":"box__say"}`)
				if err != nil || m.Error != nil && !wasDenied(m) {
					t.Errorf("a call answered %s, %v", m.Raw, err)
					return false
				}
				return true
			})
			syscall.Kill(pids[0], signal)
			settled(t, "plugin processes that are not another", 0, func() int {
				for _, pid := range g.pluginPids() {
					if pid != pids[0] {
						return 0
					}
				}
				return 1
			})
			c := g.client("2025-11-25")
			settled(t, "calls refused", 0, func() int {
				if m := ask(t, c, "tools/call", `{"name":"box__say"}`); m.Error != nil {
					return 1
				}
				return 0
			})
			end()
			g.recorded("- - - - - plugin_lost", "- - - - - plugin_restarted")
			if name == "stopped" { // three of them had it found out
				g.failed("no verdict within 1s")
			}
		})
	}
}

func TestAPluginIsReconfiguredWithoutLosingACall(t *testing.T) {
	front(t, box("box")+plugin("tools", renaming), "2025-11-25", func(t *testing.T, g *gatekit,
		c *mcptest.Client) {
		open(t, c)
		waiting(t, c, "box", `"w"`, "w")
		old := g.pluginPids()
		listen := ""
		if g.url != "" {
			listen = fmt.Sprintf("[listen]\nhttp = %q\n",
				strings.TrimSuffix(strings.TrimPrefix(g.url, "http://"), "/mcp"))
		}
		mark := c.Mark()
		g.configure(listen + box("box") + plugin("tools", `tools = { hide = ["log"] }`))
		if _, err := c.AwaitMethod(bounded(t), mark,
			"notifications/tools/list_changed"); err != nil {
			t.Fatalf("nothing told the client of the change: %v", err)
		}
		call(t, c, "box__echo", ``)
		if m := ask(t, c, "tools/call", `{"name":"box__log"}`); string(mcptest.At(m.Error,
			"code")) != "-31000" {
			t.Errorf("what is hidden now answered %s", m.Raw)
		}
		if now := g.pluginPids(); len(now) != 1 || now[0] != old[0] {
			t.Errorf("the plugins' process was %v and is %v: it need not end for a change of "+
				"configuration", old, now)
		}
		// invalid: reported, and all stays
		g.configure(listen + box("box") + plugin("tools", `tools = { hid = ["log"] }`))
		g.says(`did you mean \"hide\"`, 1)
		if m := ask(t, c, "tools/call", `{"name":"box__log"}`); string(mcptest.At(m.Error,
			"code")) != "-31000" {
			t.Errorf("what was hidden before answered %s", m.Raw)
		}
		// the call that was under way all the time
		c.Notify("notifications/cancelled", `{"requestId":"w"}`)
		call(t, c, "box__cancelled", `{"tag":"w"}`)
		g.recorded("- - - - - reload", "to_server request tools/call box log deny")
	})
}
