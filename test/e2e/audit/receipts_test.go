package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

const receiptsOn = "[audit]\nfile = \"audit.jsonl\"\nreceipts = true\n"

// verifyReceipt verifies a receipt with both verifiers, each in a process of its own: gatekit audit
// verify-receipt, and the example in JavaScript. Each prints what it found, as JSON. Both take the
// flags that require names.
func verifyReceipt(t *testing.T, key, result, arguments string,
	flags ...string) (found map[string]verified) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"result": result, "arguments": arguments} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found = map[string]verified{}
	for name, command := range map[string][]string{
		"gatekit": {peers.Gatekit(t), "audit", "verify-receipt", "--json", "--key", key,
			"--arguments", "arguments", "result"},
		"node": {"node", filepath.Join(peers.Top(), "examples", "receipts", "verify-receipt.mjs"),
			key, "result", "arguments"},
	} {
		command = append(command, flags...)
		c := exec.CommandContext(harness.Context(t), command[0], command[1:]...)
		c.Dir = dir
		out, err := c.Output()
		var v verified
		if jsonErr := json.Unmarshal(out, &v); jsonErr != nil || v.Valid != (err == nil) {
			t.Fatalf("%s ended with %v and printed %q", name, err, out)
		}
		found[name] = v
	}
	return found
}

// verified is the output of a verifier.
type verified struct {
	Valid   bool
	Error   string
	Receipt struct {
		Log, Server, Tool, Decision, Policy string
		Record                              uint64
	}
}

// Every result of a tool has a receipt, in both eras and over both transports.
func TestResultsHaveReceipts(t *testing.T) {
	peers.Installed(t, "node")
	const arguments = `{"text":"grüß","n":[1.50,106099e-136,-2.5e-3,9.9999999999999992e22,-0.0,` +
		`0.10000000000000001],"deep":[{"b":null,"a":1e2}]}`
	for _, route := range harness.Routes {
		for _, front := range harness.Revisions {
			t.Run(front+" to "+route.Name, func(t *testing.T) {
				config := harness.ScriptedServerOver(t, "box", route.Revision, route.Back) +
					receiptsOn
				harness.EachTransport(t, config, front, func(t *testing.T, g *harness.Gatekit,
					c *mcptest.Client) {
					harness.Handshake(t, c)
					m := harness.CallTool(t, c, "box__echo", arguments)
					wantReceipt(t, g, m, "box", "echo", arguments)
				})
			})
		}
	}
}

// The command prints the receipt, and refuses one of another tool or server.
func TestVerifyReceiptCommand(t *testing.T) {
	g, c := harness.StartStdio(t, harness.ScriptedServer("box")+receiptsOn, "2025-11-25")
	result := string(harness.CallTool(t, c, "box__echo", `{}`).Result)
	for _, tt := range []struct {
		flags []string
		valid bool
		want  string
	}{
		{nil, true, "echo of server box"},
		{[]string{"--server", "box", "--tool", "echo"}, true, "decision:  pass, record "},
		{[]string{"--server", "other"}, false, `the receipt is for server "box", not "other"`},
		{[]string{"--log", "other"}, false, `the receipt is for log "`},
		{[]string{"--tool", "other"}, false, `the receipt is for tool "echo", not "other"`},
		{[]string{"--tool", "other", "--json"}, false,
			`{"valid":false,"error":"the receipt is for tool`},
	} {
		cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t), append([]string{"audit",
			"verify-receipt", "--key", filepath.Join(g.Dir, "audit.jsonl.pub")}, tt.flags...)...)
		cmd.Stdin = strings.NewReader(result)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.want) || (err == nil) != tt.valid {
			t.Errorf("%v: %v, %s, want %s", tt.flags, err, out, tt.want)
		}
	}
	g.WantRecords("to_client response tools/call box echo pass")
}

// The record that a receipt names is in the log: audit prove proves it with the receipt's key.
func TestReceiptAndProof(t *testing.T) {
	g, c := harness.StartStdio(t, harness.ScriptedServer("box")+receiptsOn, "2025-11-25")
	m := harness.CallTool(t, c, "box__echo", `{"text":"one"}`)
	c.Close()
	<-g.Exited
	receipt := verifyReceipt(t, filepath.Join(g.Dir, "audit.jsonl.pub"), string(m.Result),
		`{"text":"one"}`)["gatekit"].Receipt
	run := func(stdin string, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t), args...)
		var errors strings.Builder
		cmd.Dir, cmd.Stdin, cmd.Stderr = g.Dir, strings.NewReader(stdin), &errors
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, errors.String())
		}
		return string(out), errors.String()
	}
	proof, _ := run("", "audit", "prove", fmt.Sprint(receipt.Record))
	record, about := run(proof, "audit", "verify-proof", "--key", "audit.jsonl.pub")
	var proved harness.Record
	if err := json.Unmarshal([]byte(record), &proved); err != nil {
		t.Fatalf("%v: %s", err, record)
	}
	want := "to_client response tools/call " + receipt.Server + " " + receipt.Tool + " " +
		receipt.Decision
	if proved.Seq != receipt.Record || proved.String() != want ||
		!strings.Contains(about, "of the log "+receipt.Log+",") {
		t.Errorf("the receipt is %+v, but the proof is %sfor %s", receipt, about, record)
	}
}

// Results that Gatekit denies have receipts, too. Results that no double can hold have a reason.
func TestReceiptOfDenialAndOfLargeNumber(t *testing.T) {
	peers.Installed(t, "node")
	g, c := harness.StartStdio(t, harness.ScriptedServer("box")+receiptsOn+
		"[deny]\ntool_calls = \"result\"\n"+harness.PolicyFile(t, `deny contains "not today" if input.params.arguments.text == "secret"
`), "2025-11-25")
	key := filepath.Join(g.Dir, "audit.jsonl.pub")
	m := harness.CallTool(t, c, "box__echo", `{"text":"secret"}`)
	for name, v := range verifyReceipt(t, key, string(m.Result), `{"text":"secret"}`) {
		r := v.Receipt
		if !v.Valid || r.Decision != "deny" || r.Policy == "" {
			t.Errorf("%s found %+v in %s, want a receipt of a denial", name, v, m.Raw)
			continue
		}
		if got, want := g.Records()[r.Record-1].String(),
			"to_server request tools/call box echo deny"; got != want {
			t.Errorf("record %d is %s, want %s", r.Record, got, want)
		}
	}
	m = harness.CallTool(t, c, "box__echo", `{"n":9007199254740993}`)
	for name, v := range verifyReceipt(t, key, string(m.Result), `{"n":9007199254740993}`) {
		if v.Valid || !strings.Contains(v.Error, "the result has no receipt: no receipt for the "+
			"arguments: a number is no IEEE 754 double") {
			t.Errorf("%s found %+v in %s, want the reason", name, v, m.Raw)
		}
	}
	g.WantRecords("to_client response tools/call box echo pass")
}

// receiptTest is a receipt in a result, and what the verifiers must find.
type receiptTest struct {
	name, key, result, arguments string // key is the file of the public key

	err    string            // a part of the error; "" if the receipt is valid
	wanted map[string]string // members that the receipt must have
}

// check fails the test unless a verifier found what it must find.
func (tt receiptTest) check(t *testing.T, verifier string, v verified) {
	t.Helper()
	if v.Valid != (tt.err == "") || !strings.Contains(v.Error, tt.err) {
		t.Errorf("%s found %+v, want the error %q", verifier, v, tt.err)
	}
}

// Both verifiers refuse a receipt that was changed, is for another call, or is of another log.
func TestForgedReceipts(t *testing.T) {
	peers.Installed(t, "node")
	const arguments = `{"text":"one"}`
	g, c := harness.StartStdio(t, harness.ScriptedServer("box")+receiptsOn, "2025-11-25")
	key := filepath.Join(g.Dir, "audit.jsonl.pub")
	result := string(harness.CallTool(t, c, "box__echo", arguments).Result)
	replayed := string(harness.CallTool(t, c, "box__echo", `{"text":"two"}`).Result)
	other, otherClient := harness.StartStdio(t, harness.ScriptedServer("box")+receiptsOn,
		"2025-11-25")
	otherResult := string(harness.CallTool(t, otherClient, "box__echo", arguments).Result)
	receipt := string(mcptest.At(json.RawMessage(result), "_meta", "gatekit/receipt"))
	otherReceipt := string(mcptest.At(json.RawMessage(otherResult), "_meta", "gatekit/receipt"))
	otherKey := filepath.Join(other.Dir, "audit.jsonl.pub")

	replaced := func(old, replacement string) string {
		t.Helper()
		changed := strings.Replace(result, old, replacement, 1)
		if changed == result {
			t.Fatalf("%s is not in %s", old, result)
		}
		return changed
	}
	log := string(mcptest.At(json.RawMessage(receipt), "log"))
	const badJSON = "read" // the error for a text that is not allowed
	tests := []receiptTest{
		{"the receipt", key, result, arguments, "", nil},
		{"the receipt of the other log", otherKey, otherResult, arguments, "", nil},
		{"a whole response", key, `{"jsonrpc":"2.0","id":1,"result":` + result + `}`, arguments, "",
			nil},
		{"equal arguments", key, result, ` {"text": "\u006fne" } `, "", nil},
		{"numbers in another form", key, replaced(`"version":1,`, `"version":1.0,`), arguments, "",
			nil},
		{"with its names", key, result, arguments, "", map[string]string{"server": "box",
			"tool": "echo", "log": strings.Trim(log, `"`)}},
		{"for another tool", key, result, arguments, `the receipt is for tool "echo", not "add"`,
			map[string]string{"server": "box", "tool": "add"}},
		{"for another server", key, result, arguments,
			`the receipt is for server "box", not "other"`, map[string]string{"server": "other"}},
		{"for another log that has the key, too", key, result, arguments,
			`the receipt is for log `, map[string]string{"log": "other/1"}},
		{"for other arguments", key, result, `{"text":"two"}`, "does not match the arguments", nil},
		{"for no arguments", key, result, ``, "does not match the arguments", nil},
		{"for arguments with duplicate names", key, result, `{"text":"two","text":"one"}`, badJSON,
			nil},
		{"for arguments that a double rounds", key, result, `{"text":9007199254740993}`, badJSON,
			nil},
		{"for arguments that are not UTF-8", key, result, "{\"text\":\"one\xff\"}", " ", nil},
		{"for arguments after a byte order mark", key, result, "\ufeff" + arguments, badJSON, nil},
		{"for another result", key, strings.Replace(replayed, string(mcptest.At(
			json.RawMessage(replayed), "_meta", "gatekit/receipt")), receipt, 1), arguments,
			"does not match the result", nil},
		{"for a result with more in _meta", key, replaced(`"gatekit/receipt"`,
			`"more":1,"gatekit/receipt"`), arguments, "does not match the result", nil},
		{"for a result with a reason, too", key, replaced(`"gatekit/receipt"`,
			`"gatekit/noReceipt":"x","gatekit/receipt"`), arguments, "does not match the result",
			nil},
		{"for another result beside the response", key, `{"jsonrpc":"2.0","id":1,"content":[],` +
			`"result":` + result + `}`, arguments, "has the members jsonrpc, id and result only", nil},
		{"in a response without an id", key, `{"jsonrpc":"2.0","content":[],"result":` + result +
			`}`, arguments, badJSON, nil},
		{"of the other log, with its key", key, otherResult, arguments, "is signed with key", nil},
		{"of the other log, in this result", key, replaced(receipt, otherReceipt),
			arguments, "is signed with key", nil},
		{"of this log, with the key of the other", otherKey, result, arguments,
			"is signed with key", nil},
		{"a duplicate member", key, replaced(`"record":`, `"record":1,"record":`), arguments,
			badJSON, nil},
		{"no receipt", key, replaced(`"gatekit/receipt"`, `"receipt"`), arguments,
			"the result has no receipt", nil},
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(receipt), &members); err != nil || len(members) != 14 {
		t.Fatalf("the receipt has %d members, %v: %s", len(members), err, receipt)
	}
	change := func(name, what string, value any) {
		changed := maps.Clone(members)
		if changed[name] = value; value == nil {
			delete(changed, name)
		}
		b, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, receiptTest{"a " + name + " that was " + what, key,
			replaced(receipt, string(b)), arguments, "e", nil})
	}
	for name, old := range members {
		if text, isText := old.(string); isText {
			change(name, "changed", "A"+text[min(1, len(text)):])
			change(name, "changed in type", 7)
		} else {
			change(name, "changed", old.(float64)+1)
			change(name, "changed in type", fmt.Sprint(old))
		}
		change(name, "removed", nil)
	}
	change("more", "added", "x")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var flags []string
			for name, value := range tt.wanted {
				flags = append(flags, "--"+name, value)
			}
			for name, v := range verifyReceipt(t, tt.key, tt.result, tt.arguments, flags...) {
				tt.check(t, name, v)
			}
		})
	}
	t.Run("in Chromium", func(t *testing.T) {
		for i, v := range verifyInChromium(t, tests) {
			tests[i].check(t, tests[i].name, v)
		}
	})
	g.WantRecords("to_client response tools/call box echo pass")
}
