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

var update = flag.Bool("update", false, "write the actual output into the scripts")

// TestScripts runs the scripts in testdata. They are testscripts with gatekit in their PATH and
// two more commands:
//
//	talk [http] FILE [ARGS…]  starts gatekit with ARGS (default "run") in the working folder
//	                          and sends it the conversation in FILE, over stdio or HTTP; with
//	                          !, gatekit must end with an error after the client has closed
//	audit [sorted]            prints one line for each record of the audit log:
//	                          direction kind method server name action
//
// These lines of a conversation file have a meaning; all other lines are ignored:
//
//	> MESSAGE   send the message and wait for the answer
//	>> MESSAGE  send the message without waiting
//	~ METHOD    wait for a notification or a request with this method
//	# TEXT      do nothing; the line is a comment
//
// talk prints these lines and the received messages, so that a script can compare its output with
// FILE. With `go test -update` the test writes the actual output to FILE.
func TestScripts(t *testing.T) {
	runScripts(t, testscript.Params{Dir: "testdata"})
}

// TestExamples runs the script of each example in a copy of the folder examples/NAME. Beside
// examples, the working folder has links to the parts of the repository that an example may use.
func TestExamples(t *testing.T) {
	harness.Long(t, "builds plugins and starts real servers")
	files, err := filepath.Glob("../../../examples/*/script.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no examples with a script (%v)", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			vars := map[string]string{}
			switch name {
			case "03-policies": // it uses the servers of gatekit demo
			case "plugin-go":
				vars = peers.GoEnv(t)
			case "plugin-python":
				peers.Python(t)
			case "plugin-typescript":
				vars["NODE_PATH"] = peers.TypeScript(t).Path()
			default:
				vars["NODE_PATH"] = peers.Node(t).Path()
			}
			runScripts(t, testscript.Params{
				Files: []string{file},
				Setup: func(e *testscript.Env) error {
					for name, value := range vars {
						e.Setenv(name, value)
					}
					for _, part := range []string{"core", "plugins", "go.mod", "go.sum"} {
						if err := os.Symlink(filepath.Join(peers.Top(), part),
							filepath.Join(e.WorkDir, part)); err != nil {
							return err
						}
					}
					return os.CopyFS(filepath.Join(e.WorkDir, "examples", name),
						os.DirFS(filepath.Dir(file)))
				},
			})
		})
	}
}

// runScripts runs the scripts of p with gatekit in their PATH and a free address in ADDRESS.
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
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){
		"talk":  talk,
		"audit": printAudit,
	}
	testscript.Run(t, p)
}

// talk implements the script command talk; see TestScripts.
func talk(ts *testscript.TestScript, neg bool, args []string) {
	overHTTP := len(args) > 1 && args[0] == "http"
	if overHTTP {
		args = args[1:]
	}
	if len(args) == 0 {
		ts.Fatalf("usage: [!] talk [http] FILE [ARGS…]")
	}
	gatekitArgs := []string{"run"}
	if len(args) > 1 {
		gatekitArgs = args[1:]
	}
	cmd := exec.Command(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "gatekit"),
		gatekitArgs...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "ADDRESS", "WORK"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	stderr := &harness.Output{}
	cmd.Stderr = stderr
	defer func() { ts.Logf("gatekit's stderr:\n%s", stderr) }()

	var conn mcptest.Conn
	if overHTTP {
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
		process, err := mcptest.Command(cmd)
		ts.Check(err)
		conn = process
	}
	c := mcptest.NewClient(conn, "2025-11-25")
	defer func() {
		if err := c.Close(); (err != nil) != neg {
			ts.Fatalf("gatekit ended with %v", err)
		}
	}()
	sendConversation(ts, c, ts.ReadFile(args[0]))
}

// sendConversation sends the lines of a conversation file and prints the conversation as it
// happened.
func sendConversation(ts *testscript.TestScript, c *mcptest.Client, file string) {
	printed := 0
	printReceived := func() {
		for _, f := range c.Frames()[printed:] {
			printed++
			if !f.Sent {
				fmt.Fprintf(ts.Stdout(), "< %s\n", withPlaceholders(ts, string(f.Raw)))
			}
		}
	}
	for lines := bufio.NewScanner(strings.NewReader(file)); lines.Scan(); {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		line := lines.Text()
		marker, rest, _ := strings.Cut(line, " ")
		var err error
		switch marker {
		case ">", ">>", "~", "#":
			fmt.Fprintln(ts.Stdout(), line)
		}
		switch marker {
		case ">":
			mark := c.Mark()
			ts.Check(c.Send(rest))
			if m, parseErr := mcptest.Parse([]byte(rest)); parseErr != nil || m.ID != nil {
				_, err = c.Await(ctx, mark, func(a mcptest.Message) bool {
					return a.Method == "" && (parseErr != nil || string(a.ID) == string(m.ID) ||
						string(a.ID) == "null" || a.ID == nil)
				})
			}
		case ">>":
			err = c.Send(rest)
		case "~":
			_, err = c.AwaitMethod(ctx, printed, rest)
		}
		cancel()
		printReceived()
		if err != nil {
			ts.Fatalf("after %q: %v", line, err)
		}
	}
}

// version matches the version of gatekit in a message.
var version = regexp.MustCompile(`("name":"gatekit","version":)"[^"]*"`)

// withPlaceholders returns a message with placeholders for the working folder, which differs from
// run to run, and for the version, which differs from build to build.
func withPlaceholders(ts *testscript.TestScript, message string) string {
	message = strings.ReplaceAll(message, ts.Getenv("WORK"), "$WORK")
	return version.ReplaceAllString(message, `$1"VERSION"`)
}

// printAudit implements the script command audit; see TestScripts.
func printAudit(ts *testscript.TestScript, neg bool, args []string) {
	// Servers that receive a request at the same time answer in any order.
	sorted := slices.Equal(args, []string{"sorted"})
	if neg || len(args) > 0 && !sorted {
		ts.Fatalf("usage: audit [sorted]")
	}
	var records []string
	for line := range strings.Lines(ts.ReadFile("audit.jsonl")) {
		var r harness.Record
		ts.Check(json.Unmarshal([]byte(line), &r))
		records = append(records, r.String())
	}
	if sorted {
		slices.Sort(records)
	}
	fmt.Fprintln(ts.Stdout(), strings.Join(records, "\n"))
}
