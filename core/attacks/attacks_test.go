package attacks_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"gatekit/core/attacks"
	"gatekit/core/conn"
)

// TestEveryCaseArrivesWithoutAGateway plays each case with nothing between the client and the
// server: the harm of each attack and the use of each honest case must arrive.
func TestEveryCaseArrivesWithoutAGateway(t *testing.T) {
	all, err := attacks.Cases()
	if err != nil {
		t.Fatal(err)
	}
	stage := &attacks.Stage{}
	honest := map[string]bool{}
	hostile := map[string]bool{}
	for _, c := range all {
		for _, era := range c.Eras {
			out, err := stage.Play(t.Context(), c, era, "", relay(t, stage))
			if err != nil || !out.Arrived || len(out.Refused) > 0 {
				t.Errorf("%s (%s): arrived %v, refused %q, error %v; want that it arrives", c.Name,
					era, out.Arrived, out.Refused, err)
			}
		}
		if c.Honest != strings.HasPrefix(c.Name, "honest-") {
			t.Errorf("%s: honest is %v, want a name that says so", c.Name, c.Honest)
		}
		if c.Honest {
			honest[c.Class] = true
		} else {
			hostile[c.Class] = true
		}
	}
	stage.Wait()
	for _, class := range attacks.Classes() {
		if !honest[class] || !hostile[class] {
			t.Errorf("class %q: attack %v, look-alike %v; want both", class, hostile[class],
				honest[class])
		}
	}
}

// relay returns a function that connects a client with the server of a stage.
func relay(t *testing.T, stage *attacks.Stage) func(context.Context, conn.Pipe) error {
	return func(ctx context.Context, client conn.Pipe) error {
		server, err := stage.Dial(ctx)
		if err != nil {
			t.Error(err)
			return err
		}
		var both sync.WaitGroup
		forward := func(from, to conn.Pipe) {
			for {
				b, err := from.Read(ctx)
				if err != nil || to.Write(ctx, b) != nil {
					server.Close()
					return
				}
			}
		}
		both.Go(func() { forward(client, server) })
		both.Go(func() { forward(server, client) })
		both.Wait()
		return nil
	}
}

// TestDayHasTheToolsOfAllCases plays the honest day with nothing between the client and the server.
// The day calls each tool of the cases, but makes no request of a case that has a value.
func TestDayHasTheToolsOfAllCases(t *testing.T) {
	all, err := attacks.Cases()
	if err != nil {
		t.Fatal(err)
	}
	day, err := attacks.Day(all)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^\{"name":("[^"]*")`)
	used := map[string]bool{}
	stage := &attacks.Stage{}
	for _, c := range day {
		for _, era := range []string{attacks.Legacy, attacks.Modern} {
			out, err := stage.Play(t.Context(), c, era, "", relay(t, stage))
			if err != nil || len(out.Refused) > 0 {
				t.Errorf("%s (%s): refused %q, error %v", c.Name, era, out.Refused, err)
			}
		}
		for _, r := range c.Requests {
			if tool := name.FindString(r.Params); tool != "" {
				used[tool] = true
			}
			used[r.Params] = true
		}
	}
	stage.Wait()
	for _, c := range all {
		for _, r := range c.Requests {
			if tool := name.FindString(r.Params); r.Method == "tools/call" && !used[tool] {
				t.Errorf("%s: the day does not call %s", c.Name, tool)
			}
			// the definition of the tool offers two values, and the number of an item says nothing
			numbered := strings.Contains(r.Params, `"n":`) || strings.Contains(r.Params, `"mode":`)
			if r.Method == "tools/call" && !numbered && used[r.Params] {
				t.Errorf("%s: the day makes the request %s", c.Name, r.Params)
			}
		}
	}
}

// TestGatewayThatStopsACaseIsSeen plays a case through gateways that change messages or end.
func TestGatewayThatStopsACaseIsSeen(t *testing.T) {
	all, err := attacks.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Name != "traversal-plain" {
			continue
		}
		stage := &attacks.Stage{}
		out, err := stage.Play(t.Context(), c, attacks.Legacy, "", func(ctx context.Context,
			client conn.Pipe) error {
			for {
				b, err := client.Read(ctx)
				if err != nil {
					return err
				}
				_, id, ok := strings.Cut(string(b), `"id":`)
				if !ok {
					continue
				}
				id, _, _ = strings.Cut(id, ",")
				answer := `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[]}}`
				if strings.Contains(string(b), "etc/passwd") {
					answer = `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":1,"message":"no"}}`
				}
				if err := client.Write(ctx, []byte(answer)); err != nil {
					return err
				}
			}
		})
		if err != nil || out.Arrived || len(out.Refused) != 1 || out.Refused[0] != "no" {
			t.Errorf("Play returned %+v, %v, want one refusal", out, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := stage.Play(ctx, c, attacks.Modern, "", func(ctx context.Context,
			_ conn.Pipe) error {
			<-ctx.Done()
			return nil
		}); err == nil {
			t.Error("Play through a gateway that does not answer returned no error")
		}
		return
	}
	t.Fatal("there is no case traversal-plain")
}

// TestCasesWithMistakesAreRefused reads files that are not as the documentation says.
func TestCasesWithMistakesAreRefused(t *testing.T) {
	const good = `class = "SSRF"
about = "a"
source = "s"
owasp = ["ASI02"]
request = [{method = "tools/list", params = "{}"}]
server = {"tools/list" = '{"tools":[]}'}
mark = {reaches = "client", texts = ["x"]}
`
	read := func(content string) error {
		_, err := attacks.Read(fstest.MapFS{"a.toml": {Data: []byte(content)}})
		return err
	}
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"SSRF"`, `"other"`, `class "other"`},
		{`about = "a"`, ``, "about and source"},
		{`source = "s"`, ``, "about and source"},
		{`["ASI02"]`, `[]`, "at least one entry"},
		{`["ASI02"]`, `["ASI99"]`, "no entry of the lists"},
		{`[{method = "tools/list", params = "{}"}]`, `[]`, "no [[request]]"},
		{`params = "{}"`, `params = "["`, "params of request 1"},
		{`'{"tools":[]}'`, `'[]'`, "server.tools/list"},
		{`"client"`, `"nobody"`, `mark.reaches is "nobody"`},
		{`["x"]`, `[""]`, "mark.texts"},
		{`["x"]`, `[]`, "mark.texts"},
		{`about = "a"`, "about = \"a\"\neras = [\"old\"]", `eras: "old"`},
		{`about = "a"`, "about = \"a\"\nneeds = \"luck\"", `needs is "luck"`},
		{`about = "a"`, "about = \"a\"\nabuot = \"b\"", "missing"},
		{`about = "a"`, "about = \"a\"\nask = {method = \"x\", params = \"x\"}", "ask.params"},
		{`about = "a"`, "about = \"a\"\nlater = [{after = 1, results = {\"m\" = \"1\"}}]",
			"later.m"},
	} {
		err := read(strings.Replace(good, c.old, c.new, 1))
		if err == nil || !strings.HasPrefix(err.Error(), "a.toml: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Read returned %v, want an error with %q", c.new, err, c.want)
		}
	}
}

// TestCasesOfClasses selects cases.
func TestCasesOfClasses(t *testing.T) {
	all := []attacks.Case{{Name: "a", Class: "SSRF"}, {Name: "b", Class: "skills"}}
	got, err := attacks.Of(all, []string{"skills"})
	if err != nil || len(got) != 1 || got[0].Name != "b" {
		t.Errorf("Of returned %v, %v, want b", got, err)
	}
	if got, err := attacks.Of(all, nil); err != nil || len(got) != 2 {
		t.Errorf("Of without classes returned %v, %v, want all", got, err)
	}
	if _, err := attacks.Of(all, []string{"traversal"}); err == nil {
		t.Error("Of without a match returned no error")
	}
}
