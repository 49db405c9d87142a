package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
	"gatekit/transport/tokenstore"
	"gatekit/transport/valkey"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// startState starts the server of the state that replicas share. It keeps logins, so it must be
// durable.
func startState(t *testing.T) *redistest.Server {
	return redistest.Start(t)
}

var stateKey = strings.Repeat("k", 32)

// sharing returns [listen] state_key, further settings of [listen], and [shared]. It comes first in
// the configuration.
func sharing(state *redistest.Server, listen ...string) string {
	return fmt.Sprintf("state_key = %q\n%s[shared]\nurl = \"redis://%s\"\ntimeout = \"5s\"\n",
		stateKey, strings.Join(listen, ""), state.Addr)
}

// startReplicas starts three replicas with one configuration, each with a state folder of its own.
func startReplicas(t *testing.T, config string) (all []*harness.Gatekit) {
	t.Helper()
	for range 3 {
		all = append(all, start(t, config))
	}
	return all
}

// actionsOf returns the events of logins in the logs of all replicas.
func actionsOf(replicas []*harness.Gatekit) map[string]int {
	all := map[string]int{}
	for _, g := range replicas {
		for action, n := range actions(g) {
			all[action] += n
		}
	}
	return all
}

// untilExpired waits until the access token of the only login has expired.
func untilExpired(t *testing.T, dir string) {
	t.Helper()
	harness.WaitUntilAtMost(t, "a token that has not expired", 0, func() int {
		out, _ := gatekit(t, dir, "auth", "list", "--json")
		var l struct {
			State   string
			Expires time.Time
		}
		if err := json.Unmarshal([]byte(out), &l); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if l.State == "refreshable" {
			return 0
		}
		time.Sleep(time.Until(l.Expires))
		return 1
	})
}

// withShortTokens runs a test with access tokens that are valid for some seconds, and again with
// longer ones if a busy machine has not used them before they expired. The test then returns false.
func withShortTokens(t *testing.T, test func(seconds int) (inTime bool)) {
	t.Helper()
	for seconds := 6; !test(seconds); seconds *= 3 {
		if seconds > 100 {
			t.Fatalf("tokens that are valid for %d s expired before their use", seconds)
		}
	}
}

// wantEverywhere waits until all clients get a result for ann, or an error with a text.
func wantEverywhere(t *testing.T, clients []*mcptest.Client, want string) {
	t.Helper()
	for _, c := range clients {
		harness.WaitUntilAtMost(t, "answers without "+want, 0, func() int {
			if strings.Contains(whoAmI(t, c), want) {
				return 0
			}
			return 1
		})
	}
}

// A login at one replica is used by all of them. 300 calls with an expired token make one refresh.
// A logout beside another replica holds for all.
func TestReplicasShareLogins(t *testing.T) {
	t.Parallel()
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			withShortTokens(t, func(seconds int) bool { return shareLogins(t, revision, seconds) })
		})
	}
}

// shareLogins is TestReplicasShareLogins with tokens that are valid for some seconds. It returns
// false if the tokens expired too early.
func shareLogins(t *testing.T, revision string, seconds int) (inTime bool) {
	a := startProvider(t, seconds)
	p := protectedBy(t, a, false)
	state := startState(t)
	all := startReplicas(t, sharing(state)+oauth(p, pinned(a), preRegistered)+
		harness.ScriptedServer("other"))
	a.logIn(t, all[0].Dir, "ann", "box")
	var clients []*mcptest.Client
	for _, g := range all {
		c := connect(t, g, revision)
		harness.Handshake(t, c)
		clients = append(clients, c)
	}
	wantEverywhere(t, clients, "you are ann")
	untilExpired(t, all[1].Dir)
	if actionsOf(all)["refreshed"] != 0 {
		return false
	}
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			m, err := clients[i%3].Tool(harness.Context(t), "box__whoami", `{}`)
			if err != nil || !strings.Contains(string(m.Result), "you are ann") {
				t.Errorf("got %s, %v", m.Raw, err)
			}
		})
	}
	wg.Wait()
	if n := a.count("grant refresh_token"); n != 1 {
		t.Errorf("300 calls made %d refreshes, want 1", n)
	}
	if got := actionsOf(all); got["login"] != 1 || got["refreshed"] != 1 {
		t.Errorf("the logs have the events %v, want one login and one refresh", got)
	}
	out, code := gatekit(t, all[2].Dir, "auth", "list")
	if code != 0 || !strings.Contains(out, "the local user") ||
		!strings.Contains(out, "valid") {
		t.Errorf("auth list beside another replica: exit code %d\n%s", code, out)
	}
	if out, code := gatekit(t, all[2].Dir, "auth", "logout", "box"); code != 0 {
		t.Fatal(out)
	}
	wantEverywhere(t, clients, "not logged in")
	if got := actionsOf(all); got["logout"] != 1 {
		t.Errorf("the logs have the events %v, want one logout", got)
	}
	for _, g := range all {
		wantHidden(t, g, p)
		g.CheckChain()
	}
	wantSealed(t, state, p)
	return true
}

// wantSealed fails the test if the state holds a token as text.
func wantSealed(t *testing.T, state *redistest.Server, p *protected) {
	t.Helper()
	text := state.Do(t, "EVAL", `local all = {}
for _, k in ipairs(redis.call('KEYS', '*')) do all[#all + 1] = redis.call('DUMP', k) end
return table.concat(all)`, "0")
	for _, token := range append(p.tokensSeen(), "login", "refresh") {
		if len(token) > 4 && strings.Contains(text, token) {
			t.Errorf("the state has %q", token)
		}
	}
}

// Without the server of the state, tokens in memory are used. Nobody logs in.
func TestLoginsWithoutTheState(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	state := startState(t)
	all := startReplicas(t, sharing(state)+oauth(p, pinned(a), preRegistered)+
		harness.ScriptedServer("other"))
	a.logIn(t, all[0].Dir, "ann", "box")
	knows, other := connect(t, all[0], mcptest.Modern), connect(t, all[1], mcptest.Modern)
	wantUser(t, knows, "ann")
	state.Kill(t)
	time.Sleep(1100 * time.Millisecond) // the token is compared with the state after a second
	wantUser(t, knows, "ann")
	if got := whoAmI(t, other); !strings.Contains(got, "shared state is not available") {
		t.Errorf("a replica that does not know the token answers %s", got)
	}
	if got := actions(all[1]); got["rejected"] != 1 {
		t.Errorf("the replica has recorded %v, want a rejected token", got)
	}
	if out, code := gatekit(t, all[2].Dir, "auth", "login", "box"); code == 0 ||
		!strings.Contains(out, "shared state is not available") {
		t.Errorf("auth login: exit code %d\n%s", code, out)
	}
	state.Restart(t)
	wantEverywhere(t, []*mcptest.Client{knows, other}, "you are ann")
}

// Whoever can write to the state cannot give a principal the tokens of another one.
func TestTokensOfOthersInTheStateAreRefused(t *testing.T) {
	server := startState(t)
	ring, err := shared.NewRing([]byte(stateKey))
	if err != nil {
		t.Fatal(err)
	}
	state, err := valkey.Open(t.Context(), valkey.Options{Address: server.Addr, Ring: ring,
		Prefix: "test:", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	s := tokenstore.NewShared(state)
	record := func(server, principal string) *tokenstore.Record {
		r := &tokenstore.Record{ID: tokenstore.ID{Kind: tokenstore.Login, Server: server,
			Principal: principal}, Secrets: tokenstore.Secrets{Access: principal}}
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	keys := func() []string {
		return strings.Fields(server.Do(t, "EVAL",
			"return table.concat(redis.call('KEYS', ARGV[1]), ' ')", "0", "test:value*"))
	}
	record("box", "ann")
	anns := keys()
	for _, r := range []*tokenstore.Record{record("box", "bob"), record("jira", "ann")} {
		for _, key := range keys() {
			if key != anns[0] {
				server.Do(t, "COPY", anns[0], key, "REPLACE")
			}
		}
		if got, err := s.Load(r.ID); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s at %s has the tokens of another record: %v, %v", r.Principal, r.Server,
				got, err)
		}
	}
}

// rotatingIssuer is an authorization server that logs everybody in as ann. Its refresh tokens can
// be used once.
type rotatingIssuer struct {
	*httptest.Server
	hold chan struct{} // a refresh waits for it, if it is not nil

	mu      sync.Mutex
	issued  int
	valid   string   // the refresh token
	used    []string // refresh tokens, in the order in which they came
	arrived chan struct{}
}

func startRotating(t *testing.T) *rotatingIssuer {
	i := &rotatingIssuer{arrived: make(chan struct{}, 10)}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *rotatingIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/.well-known/"):
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(oauthex.AuthServerMeta{Issuer: i.URL,
			TokenEndpoint: i.URL + "/token", AuthorizationEndpoint: i.URL + "/authorize",
			ResponseTypesSupported:            []string{"code"},
			CodeChallengeMethodsSupported:     []string{"S256"},
			TokenEndpointAuthMethodsSupported: []string{"none"}})
	case r.URL.Path == "/authorize":
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=c&state="+q.Get("state"), http.StatusFound)
	case r.FormValue("grant_type") == "refresh_token":
		i.mu.Lock()
		i.used = append(i.used, r.FormValue("refresh_token"))
		hold := i.hold
		i.mu.Unlock()
		i.arrived <- struct{}{}
		if hold != nil {
			<-hold
			return // nobody is there any more
		}
		if r.FormValue("refresh_token") != i.valid {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":"invalid_grant"}`)
			return
		}
		i.issue(w, 3600)
	default:
		i.issue(w, 1)
	}
}

func (i *rotatingIssuer) issue(w http.ResponseWriter, seconds int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued++
	i.valid = fmt.Sprintf("refresh-%d", i.issued)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"access-%d","token_type":"Bearer","expires_in":%d,`+
		`"refresh_token":%q,"scope":"read"}`, i.issued, seconds, i.valid)
}

// A replica is killed while it refreshes a token, and holds the lock of the login. The others wait
// for the end of the lock at most, and then refresh the token.
func TestReplicaIsKilledDuringARefresh(t *testing.T) {
	harness.Long(t, "the lock of a dead replica ends after 20 s")
	t.Parallel()
	i := startRotating(t)
	p := &protected{t: t, needs: []string{"read"}}
	p.serve(false, i.URL, func(token string) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "ann", Scopes: p.needs,
			Expiration: time.Now().Add(time.Hour)}, nil
	})
	state := startState(t)
	config := sharing(state) + oauth(p, fmt.Sprintf("issuer = %q", i.URL),
		`client = { id = "gatekit" }`) + harness.ScriptedServer("other")
	all := startReplicas(t, config)
	_, out, code := runLogIn(t, all[0].Dir, []string{"box"}, func(page, _ string) string {
		answer, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return ""
	})
	if code != 0 {
		t.Fatal(out)
	}
	untilExpired(t, all[0].Dir)
	hold := make(chan struct{})
	defer close(hold)
	i.mu.Lock()
	i.hold = hold
	i.mu.Unlock()
	first := connect(t, all[0], mcptest.Modern)
	go first.Tool(harness.Context(t), "box__whoami", `{}`)
	<-i.arrived
	i.mu.Lock()
	i.hold = nil
	i.mu.Unlock()
	killed := time.Now()
	all[0].Killed = true
	all[0].Cmd.Process.Kill()
	<-all[0].Exited
	all[0].KillChildren()
	var wg sync.WaitGroup
	for _, g := range all[1:] {
		c := connect(t, g, mcptest.Modern)
		wg.Go(func() { wantEverywhere(t, []*mcptest.Client{c}, "you are ann") })
	}
	wg.Wait()
	t.Logf("the others went on after %v", time.Since(killed).Round(time.Millisecond))
	i.mu.Lock()
	defer i.mu.Unlock()
	// The dead replica's request may not have reached the issuer: the token is tried once more.
	if want := []string{"refresh-1", "refresh-1"}; !slices.Equal(i.used, want) {
		t.Errorf("the issuer got the refresh tokens %q, want %q", i.used, want)
	}
	if got := actionsOf(all[1:]); got["refreshed"] != 1 {
		t.Errorf("the others have recorded %v, want one refresh", got)
	}
}

// startBalancer starts a proxy that sends each request to another gatekit than the last, once
// forward was called.
func startBalancer(t *testing.T) (url string, forward func(all []*harness.Gatekit)) {
	var balancer atomic.Pointer[http.Handler]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*balancer.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func(all []*harness.Gatekit) {
		t.Helper()
		var urls []string
		for _, g := range all {
			urls = append(urls, g.URL)
		}
		h, err := clustertest.RoundRobin(urls...)
		if err != nil {
			t.Fatal(err)
		}
		balancer.Store(&h)
	}
}

// Ann is asked to log in by one replica. Each request of her browser reaches another replica than
// the last. The call goes on, and all replicas use the login.
func TestLoginThroughSeveralReplicas(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			address, forward := startBalancer(t)
			c := &connectable{public: address + "/gate"}
			c.provider = oneAuthorizationServer().start(t, 3600, 3600,
				"CONNECT="+c.public+"/connect")
			c.server = protectedBy(t, c.provider, false)
			state := startState(t)
			all := startReplicas(t, sharing(state, c.listening())+
				oauth(c.server, pinned(c.provider), preRegistered)+harness.ScriptedServer("other"))
			forward(all)
			c.gatekit = all[0]
			ann, token := c.provider.issuer+"#ann", c.provider.accessToken("ann")
			client := c.client(t, revision, ann, token)
			question, called := callUntilAsked(t, client, opensURLs(client, "accept"))
			page := mcptest.Text(question.Params, "url")

			if status, text := newUser(t, "bob").open(c, page); status != http.StatusForbidden {
				t.Errorf("bob got status %d and the page\n%s", status, text)
			}
			user := newUser(t, "ann")
			status, text := user.open(c, page)
			if status != http.StatusOK || !strings.Contains(text, "<dd>"+ann+"</dd>") {
				t.Fatalf("ann got status %d and the page\n%s", status, text)
			}
			status, last := user.press(c, page, text)
			if status != http.StatusOK || !strings.Contains(last, "You are logged in") {
				t.Errorf("the last page has status %d:\n%s", status, last)
			}
			if got := <-called; !strings.Contains(got, "you are ann") {
				t.Errorf("the call got %s, want the result for ann", got)
			}
			for range all {
				if status, _ := user.open(c, page); status != http.StatusNotFound {
					t.Errorf("the link was used, and now gets status %d", status)
				}
			}
			for _, g := range all[1:] {
				other := bearer(t, g, token, revision)
				harness.Handshake(t, other)
				wantUser(t, other, "ann")
			}
			logins, refused := 0, 0
			for _, g := range all {
				logins += actions(g)[ann+" login"]
				refused += len(refusals(g, ann))
				wantHidden(t, g, c.server, text, last)
				g.CheckChain()
			}
			if logins != 2 || refused != 1 { // the first login is that of c.client
				t.Errorf("the logs have %d logins and %d refusals, want 2 and that of bob", logins,
					refused)
			}
		})
	}
}

// A client of one replica learns that the user has logged in at another one. A program that has the
// token in its environment ends with a logout beside another replica.
func TestChangedLoginsReachOtherReplicas(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, false)
			all := startReplicas(t, sharing(startState(t))+oauth(p, pinned(a), preRegistered)+
				withToken(revision))
			client := connect(t, all[1], revision)
			harness.Handshake(t, client)
			subscribe(t, client)
			mark := client.Mark()
			a.logIn(t, all[0].Dir, "ann", "box")
			awaitChange(t, client, mark)
			processOf(t, client)
			if out, code := gatekit(t, all[2].Dir, "auth", "logout", "box"); code != 0 {
				t.Fatal(out)
			}
			wantEnded(t, all[1], 1)
			wantNoLogin(t, client, "gatekit auth login box")
		})
	}
}
