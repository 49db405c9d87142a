package credentials

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestManyPrincipalsWithShortTokens lets principals with logins of their own call a server whose
// tokens expire all the time. It is short and small; with the variable GATEKIT_SOAK=10m, it has 64
// principals, tokens of 20 s, and takes 10 minutes at each authorization server.
func TestManyPrincipalsWithShortTokens(t *testing.T) {
	t.Parallel()
	principals, seconds, length := 6, 5, 12*time.Second
	if soak := os.Getenv("GATEKIT_SOAK"); soak != "" {
		var err error
		if length, err = time.ParseDuration(soak); err != nil {
			t.Fatal(err)
		}
		principals, seconds = 64, 20
	}
	for _, at := range authorizationServers {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			callForSomeTime(t, at, principals, seconds, length)
		})
	}
}

// callForSomeTime is TestManyPrincipalsWithShortTokens at one authorization server.
func callForSomeTime(t *testing.T, at authorizationServer, principals, seconds int,
	length time.Duration) {
	a := at.start(t, seconds, seconds)
	p := protectedBy(t, a, true)
	tables, tokens := "", map[string]string{}
	for i := range principals {
		name := fmt.Sprint("p", i)
		token, table := staticToken(t, name)
		tokens[name], tables = token, tables+table
	}
	g := start(t, tables+oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
	for name := range tokens {
		a.logIn(t, g.Dir, "user-"+name, "box", "--principal", "token:"+name)
	}
	ends := time.Now().Add(length)
	var wg sync.WaitGroup
	for i := range principals {
		name, revision := fmt.Sprint("p", i), harness.Revisions[i%len(harness.Revisions)]
		connection := mcptest.NewHTTP(g.URL)
		connection.Header.Set("Authorization", "Bearer "+tokens[name])
		c := mcptest.NewClient(connection, revision)
		t.Cleanup(func() { c.Close() })
		harness.Handshake(t, c)
		wg.Go(func() {
			for calls := 0; time.Now().Before(ends); calls++ {
				m, err := c.Tool(harness.Context(t), "box__whoami", `{}`)
				if err != nil || !strings.Contains(string(m.Result), "you are user-"+name+`"`) {
					t.Errorf("call %d of %s: got %s, %v", calls, name, m.Raw, err)
					return
				}
				time.Sleep(time.Second) // the rate of a client, not a wait
			}
		})
	}
	wg.Wait()
	refreshes, used := a.count("grant refresh_token"), len(p.tokensSeen())
	t.Logf("%d principals, %d refreshes, %d tokens used", principals, refreshes, used)
	// Each token must be used. Of the tokens of the logins, some expire before the first call.
	if refreshes < principals || refreshes > used || used > refreshes+principals {
		t.Errorf("%d refreshes and %d tokens used, want at least %d refreshes, each for a token "+
			"that is used", refreshes, used, principals)
	}
	recorded := 0
	for event, n := range actions(g) {
		if strings.HasSuffix(event, " refreshed") {
			recorded += n
		}
	}
	if recorded != refreshes {
		t.Errorf("%d records of refreshes, want %d", recorded, refreshes)
	}
	wantHidden(t, g, p)
}
