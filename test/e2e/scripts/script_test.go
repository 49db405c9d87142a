package scripts

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

var update = flag.Bool("update", false, "write what the scripts see into them")

// Scripts are testscripts with three more commands:
//
//	gatekit ARGS…           the binary, as any command
//	talk [http] FILE [ARGS…]  starts gatekit with ARGS ("run" if there are none) in the working folder and holds the conversation in FILE with it, over stdio or HTTP
//	                        with !, gatekit must end with an error when the client leaves
//	audit [sorted]          prints the audit log, a line for each record: direction kind method server name action
//
// A conversation holds lines to send ("> "), each answered before the next is sent, lines to send
// without waiting (">> "), and notifications or questions to wait for ("~ METHOD"). All else in it
// is ignored: talk prints the conversation as it went, for cmp to hold against FILE, and `go test
// -update` writes it there.
func TestScripts(t *testing.T) {
	runScripts(t, testscript.Params{Dir: "testdata"})
}

// Each example's script runs in a copy of its folder, examples/NAME, in a folder that has links to
// all of ours which an example may refer to.
func TestExamples(t *testing.T) {
	harness.Long(t, "builds plugins and starts real servers")
	files, err := filepath.Glob("../../../examples/*/script.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples with a script (%v)", err)
	}
	for _, f := range files {
		name := filepath.Base(filepath.Dir(f))
		t.Run(name, func(t *testing.T) {
			vars := map[string]string{}
			switch name {
			case "03-policies": // its servers are those of the demo
			case "plugin-go":
				vars = peers.GoEnv(t)
			case "plugin-python":
				peers.Python(t)
			case "plugin-typescript":
				vars["NODE_PATH"] = peers.TypeScript(t).Path()
			default:
				vars["NODE_PATH"] = peers.Node(t).Path()
			}
			runScripts(t, testscript.Params{Files: []string{f},
				Setup: func(e *testscript.Env) error {
					for name, value := range vars {
						e.Setenv(name, value)
					}
					for _, ours := range []string{"core", "plugins", "go.mod", "go.sum"} {
						if err := os.Symlink(filepath.Join(peers.Top(), ours),
							filepath.Join(e.WorkDir, ours)); err != nil {
							return err
						}
					}
					return os.CopyFS(filepath.Join(e.WorkDir, "examples", name),
						os.DirFS(filepath.Dir(f)))
				}})
		})
	}
}

func runScripts(t *testing.T, p testscript.Params) {
	bin, address, setup := peers.Gatekit(t), peers.FreeAddress(t), p.Setup
	p.UpdateScripts = *update
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+e.Getenv("PATH"))
		e.Setenv("ADDRESS", address)
		if setup != nil {
			return setup(e)
		}
		return nil
	}
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){"talk": talk,
		"audit": printAudit}
	testscript.Run(t, p)
}

// version is what changes in a conversation from build to build.
var version = regexp.MustCompile(`("name":"gatekit","version":)"[^"]*"`)

func talk(ts *testscript.TestScript, neg bool, args []string) {
	over := "stdio"
	if len(args) > 1 && args[0] == "http" {
		over, args = args[0], args[1:]
	}
	if len(args) == 0 {
		ts.Fatalf("usage: [!] talk [http] FILE [ARGS…]")
	}
	ours := []string{"run"}
	if len(args) > 1 {
		ours = args[1:]
	}
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "gatekit"), ours...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "ADDRESS", "WORK"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	stderr := &harness.Output{}
	cmd.Stderr = stderr
	defer func() { ts.Logf("gatekit's stderr:\n%s", stderr) }()

	var conn mcptest.Conn
	if over == "http" {
		ts.Check(cmd.Start())
		defer func() {
			cmd.Process.Signal(os.Interrupt)
			ts.Check(cmd.Wait())
		}()
		address := ts.Getenv("ADDRESS")
		if !peers.Listening(address, func() bool { return true }) {
			ts.Fatalf("gatekit does not listen on %s", address)
		}
		conn = mcptest.NewHTTP("http://" + address + "/mcp")
	} else {
		p, err := mcptest.Command(cmd)
		ts.Check(err)
		conn = p
	}
	c := mcptest.NewClient(conn, "2025-11-25")
	defer func() {
		if err := c.Close(); (err != nil) != neg {
			ts.Fatalf("gatekit ended with %v", err)
		}
	}()
	f := strings.NewReader(ts.ReadFile(args[0]))
	printed := 0
	show := func() {
		for _, f := range c.Frames()[printed:] {
			printed++
			if !f.Sent {
				fmt.Fprintf(ts.Stdout(), "< %s\n",
					version.ReplaceAllString(strings.ReplaceAll(string(f.Raw), ts.Getenv("WORK"),
						"$WORK"), `$1"VERSION"`))
			}
		}
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		var err error
		switch word {
		case ">", ">>", "~", "#":
			fmt.Fprintln(ts.Stdout(), line)
		}
		switch word {
		case ">":
			mark := c.Mark()
			ts.Check(c.Send(rest))
			if m, perr := mcptest.Parse([]byte(rest)); perr != nil || m.ID != nil {
				_, err = c.Await(ctx, mark, func(a mcptest.Message) bool {
					return a.Method == "" && (perr != nil || string(a.ID) == string(m.ID) ||
						string(a.ID) == "null" || a.ID == nil)
				})
			}
		case ">>":
			err = c.Send(rest)
		case "~":
			_, err = c.AwaitMethod(ctx, printed, rest)
		}
		cancel()
		show()
		if err != nil {
			ts.Fatalf("after %q: %v", line, err)
		}
	}
}

func printAudit(ts *testscript.TestScript, neg bool, args []string) {
	// servers that are asked at once answer in any order
	sorted := slices.Equal(args, []string{"sorted"})
	if neg || len(args) > 0 && !sorted {
		ts.Fatalf("usage: audit [sorted]")
	}
	var all []string
	for line := range strings.Lines(ts.ReadFile("audit.jsonl")) {
		var r harness.Record
		ts.Check(json.Unmarshal([]byte(line), &r))
		all = append(all, r.String())
	}
	if sorted {
		slices.Sort(all)
	}
	fmt.Fprintln(ts.Stdout(), strings.Join(all, "\n"))
}
