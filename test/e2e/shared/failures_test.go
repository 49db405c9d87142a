package shared

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

// Results of calls and commands: "" for a result, or a part of the error.
const (
	works       = ""
	unavailable = "-31000 shared state is not available"
	isPrivate   = "-31000 mine: private data" // the label of the session is known
	isLost      = "-31000 mine: state was lost"
	needsHuman  = "-31000 needs approval: run `gatekit approve "
	notStored   = "-31000 needs approval, and could not be stored for it: try again later"
	stopped     = "-31000 stopped by an operator (Gatekit)"
)

// failureTest is a failure of the server, and what follows. docs/replicas.md has the same table.
type failureTest struct {
	name     string
	settings []string // of the server
	table    []string // of [shared]
	timeout  string   // of [shared]; long, for a busy machine, unless the failure is about it
	replicas int      // of the server
	isAlone  bool     // only replica 0 cannot reach the server
	// the failure breaks connections, or replicas of the server have to be there first: until then,
	// calls are denied, as if the server were away. With a short timeout, this may happen at any
	// time on a busy machine.
	isDelayed bool
	begin     func(t *testing.T, f *fleet)
	end       func(t *testing.T, f *fleet)

	// what follows at once, at replica 0
	plain, reads, sets, asks string // calls
	counted                  string // a call that the plugin limits counts
	creates, foreign         string // a call that creates a task; a task of the other replica
	approve, stop            string // commands
	ready                    string // a line of /readyz
	start                    string // of a new replica
	// what every call gets after the stops of the others were not known for ten seconds
	later string
	// what a call that reads labels gets after the failure
	after string
	// texts in the metrics and in the log of replica 0 in the end
	metric, log string
}

// The policies of the replicas. The tool progress needs nothing of the state, log reads labels, the
// result of self sets one, and echo needs an approval.
const failurePolicy = `label contains "private" if { input.name == "self"; input.kind != "request" }
deny contains "private data" if { input.name == "log"; "private" in input.session.labels }
deny contains "state was lost" if { input.name == "log"; "lost" in input.session.labels }
ask contains "are you sure" if {
	input.method == "tools/call"
	input.kind == "request"
	input.name == "echo"
}
`

// Texts of metrics, logs and errors.
const (
	unavailableCalls = `{error_type="unavailable",gatekit_shared_method="track"}`
	lostCalls        = `{error_type="lost",gatekit_shared_method=`
	stopsUnknown     = "the stops of the other replicas are not known"
	wrongPassword    = "WRONGPASS invalid username-password pair or user is disabled"
	notInOthers      = "the stop is in force in this replica, and not yet in the others"
)

// shortTimeout is shorter than the time in which policies must decide. A failure with it has
// isDelayed.
const shortTimeout = "600ms"

// storeUser is the user of the server in failures that concern it.
const storeUser = "gatekit"

func withUser(f failureTest) failureTest {
	f.settings = []string{"--user", storeUser, "on", ">secret", "~*", "+@all"}
	f.table = []string{`user = "gatekit"`, `password = "secret"`}
	return f
}

func heal(t *testing.T, f *fleet) { f.relay.Heal() }

func nothing(*testing.T, *fleet) {}

// away adds what follows while the server cannot be used. detail is a part of its error.
func away(f failureTest, detail string) failureTest {
	f.reads, f.sets, f.asks, f.later = unavailable, unavailable, notStored, stopped
	f.counted, f.creates, f.foreign = unavailable, unavailable, unavailable
	f.approve, f.ready = detail, "FAIL  shared: shared state is not available"
	f.stop, f.start = notInOthers, detail
	f.after, f.metric, f.log = isPrivate, unavailableCalls, stopsUnknown
	return f
}

// good adds what follows while nothing is missed.
func good(f failureTest) failureTest {
	f.reads, f.asks, f.ready, f.after = isPrivate, needsHuman, "ok    shared: available", isPrivate
	return f
}

// lost adds what follows after the server lost what it knew.
func lost(f failureTest) failureTest {
	f = good(f)
	f.reads, f.after, f.metric = isLost, isLost, lostCalls
	f.foreign = "-32602 Unknown task"
	f.approve, f.log = "no request", "shared state was lost"
	return f
}

func failureTests() []failureTest {
	full := away(failureTest{name: "its memory is full",
		begin: func(t *testing.T, f *fleet) { f.server.Do(t, "CONFIG", "SET", "maxmemory", "1mb") },
		end:   func(t *testing.T, f *fleet) { f.server.Do(t, "CONFIG", "SET", "maxmemory", "0") },
	}, "OOM command not allowed")
	full.foreign = works
	full.ready, full.start, full.later = "ok    shared: available", works, works
	full.log = "a stop of this replica is not shared"
	changed := good(withUser(failureTest{name: "its password was changed",
		begin: func(t *testing.T, f *fleet) {
			f.server.Do(t, "ACL", "SETUSER", storeUser, "resetpass", ">another")
		},
		end: func(t *testing.T, f *fleet) {
			f.server.Do(t, "ACL", "SETUSER", storeUser, ">secret")
		},
	}))
	changed.approve, changed.start = wrongPassword, wrongPassword
	failedOver := lost(failureTest{name: "it failed over, and a change was lost", replicas: 1,
		isDelayed: true, end: nothing, begin: func(t *testing.T, f *fleet) {
			eventually(t, "the replica has everything", func() bool {
				return f.next[0].Do(t, "DBSIZE") == f.server.Do(t, "DBSIZE")
			})
			f.next[0].Do(t, "REPLICAOF", "NO", "ONE") // does not get the next change
			f.submit(0)
			f.promote(t)
		}})
	failedOver.approve, failedOver.foreign = works, works // from before the last change
	return []failureTest{
		away(failureTest{name: "it was killed, and starts with its data",
			begin: func(t *testing.T, f *fleet) { f.server.Kill(t) },
			end:   func(t *testing.T, f *fleet) { f.server.Restart(t) },
		}, "shared state is not available"),
		away(failureTest{name: "it refuses connections",
			begin: func(t *testing.T, f *fleet) { f.relay.Refuse(t) },
			end:   func(t *testing.T, f *fleet) { f.relay.Switch(t, f.server) },
		}, "connection refused"),
		away(failureTest{name: "it never answers", timeout: shortTimeout, isDelayed: true,
			begin: func(t *testing.T, f *fleet) { f.relay.Silence(t, true) }, end: heal},
			"shared state is not available"),
		away(failureTest{name: "it answers after the timeout", timeout: shortTimeout,
			isDelayed: true,
			begin:     func(t *testing.T, f *fleet) { f.relay.Delay(t, 3*time.Second) }, end: heal},
			"shared state is not available"),
		good(failureTest{name: "it answers slowly, within the timeout",
			begin: func(t *testing.T, f *fleet) { f.relay.Delay(t, 20*time.Millisecond) },
			end:   heal}),
		good(failureTest{name: "its connections break often", isDelayed: true,
			begin: func(t *testing.T, f *fleet) { f.relay.CutAfter(t, 20_000) }, end: heal}),
		full,
		lost(failureTest{name: "it was emptied",
			begin: func(t *testing.T, f *fleet) { f.server.Do(t, "FLUSHALL") }, end: nothing}),
		lost(failureTest{name: "it starts again without its data", isDelayed: true,
			begin: func(t *testing.T, f *fleet) { f.server.RestartEmpty(t) }, end: nothing}),
		away(withUser(failureTest{name: "its user was removed",
			begin: func(t *testing.T, f *fleet) { f.server.Do(t, "ACL", "DELUSER", storeUser) },
			end: func(t *testing.T, f *fleet) {
				f.server.Do(t, "ACL", "SETUSER", storeUser, "on", ">secret", "~*", "+@all")
			},
		}), wrongPassword),
		changed,
		good(failureTest{name: "it failed over with a copy of everything", replicas: 2,
			table: []string{"copies = 2"}, isDelayed: true, end: nothing,
			begin: func(t *testing.T, f *fleet) { f.promote(t) }}),
		failedOver,
		away(failureTest{name: "one replica cannot reach it", isAlone: true,
			timeout: shortTimeout, isDelayed: true,
			begin: func(t *testing.T, f *fleet) { f.relay.Silence(t, true) }, end: heal},
			"shared state is not available"),
	}
}

// TestFailures begins each failure while two replicas serve calls, and ends it. Each call, command
// and probe has the result of the table: at once, after ten seconds, and afterwards. No label and
// no stop that was acknowledged is missed.
func TestFailures(t *testing.T) {
	harness.Long(t, "waits until stops are not known")
	t.Parallel()
	const atOnce = 7 // failures; they mostly wait
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, tt := range failureTests() {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			t.Run(tt.name, func(t *testing.T) { testFailure(t, tt) })
		})
	}
	running.Wait()
}

func testFailure(t *testing.T, tt failureTest) {
	f := startFleet(t, tt)
	pending := f.submit(0)
	tt.begin(t, f)
	f.away, f.stops = outage(time.Now()), tt.later == stopped
	for _, c := range []struct{ tool, want string }{{"progress", tt.plain}, {"log", tt.reads},
		{"self", tt.sets}, {"echo", tt.asks}, {"update", tt.counted}, {createTask, tt.creates},
		{getTask, tt.foreign}} {
		f.wantCall(0, c.tool, c.want)
	}
	if m := harness.Request(t, f.legacy, "tools/call",
		`{"name":"box__progress","arguments":{}}`); len(m.Error) > 0 && !f.isStopped() {
		t.Errorf("a call of a session in the other replica got %s", m.Raw)
	}
	f.wantCommand(0, tt.approve, "approve", pending)
	f.wantCommand(0, tt.stop, "stop", "--server", "other", "--reason", "an incident")
	f.wantStart(tt)
	if tt.isAlone {
		f.wantCall(1, "log", isPrivate)
		f.wantCall(1, "echo", needsHuman)
	}
	f.wantProbes(0, tt.ready)
	if tt.later == stopped {
		concerned := f.all
		if tt.isAlone {
			concerned = f.all[:1]
		}
		wantRefusals(t, concerned, byGatekit)
		if tt.isAlone {
			f.wantCall(1, "progress", works)
		}
	}
	eventually(t, "the log has a line with "+tt.log, func() bool {
		return strings.Contains(f.all[0].Stderr.String(), tt.log)
	})
	f.stops = false
	tt.end(t, f)
	began := time.Now()
	f.awaitCall(0, "log", tt.after)
	t.Logf("works again after %v", time.Since(began).Round(time.Millisecond))
	wantRefusals(t, f.all, needsApproval)
	for _, what := range []string{"self", "update", createTask} {
		f.wantCall(0, what, works)
	}
	f.wantCommand(0, works, "approve", f.submit(1))
	eventually(t, "the stop is in force in the other replica", func() bool {
		output, _ := f.all[1].gatekit("stop", "status")
		return strings.Contains(output, `server "other"`)
	})
	f.wantProbes(0, "ok    shared: available")
	f.wantEvidence(tt)
}

// needsApproval is in the error of calls that need an approval and are not stopped.
const needsApproval = "needs approval: run"

// wantEvidence checks the records and the metrics of replica 0.
func (f *fleet) wantEvidence(tt failureTest) {
	f.t.Helper()
	r := f.all[0]
	if tt.reads == unavailable && !f.isLate {
		r.WantReasons("shared state is not available")
		r.WantRecords("to_server request tools/call box log deny",
			"to_client response tools/call box self deny")
	}
	if tt.reads == isLost {
		r.WantRecords("- - - - - lost")
	}
	isStopped := tt.later == stopped
	if isStopped {
		r.WantReasons("everything, by Gatekit: " + stopsUnknown)
	}
	if _, resumed := r.stopRecords(); resumed > 0 != isStopped {
		f.t.Errorf("the audit log has %d records of a resume", resumed)
	}
	if got := page(f.t, r.admin+"/metrics"); tt.metric != "" && !f.isLate &&
		!strings.Contains(got, "gatekit_shared_errors_total"+tt.metric) {
		f.t.Errorf("the metrics have no errors with %s", tt.metric)
	}
}

// fleet is two replicas and their server. Both reach it over a relay. If only replica 0 cannot
// reach it, replica 1 does without the relay.
type fleet struct {
	t      *testing.T
	server *redistest.Server
	next   []*redistest.Server // replicas of the server
	relay  *redistest.Relay
	config func(i int, address string) string
	all    []*replica
	legacy *mcptest.Client // its session is in replica 1, and its requests go to replica 0
	tag    int             // an argument of all calls

	isDelayed bool // of the failure

	away   outage // began with the failure
	stops  bool   // the replicas that cannot reach the server stop everything soon
	isLate bool   // a call came so late that it was stopped: the machine is too busy
}

// isStopped reports whether the failure may have stopped everything by now.
func (f *fleet) isStopped() bool { return f.stops && !f.away.isShort() }

// isWanted reports whether a call has the wanted result, or has come too late for it.
func (f *fleet) isWanted(got, want string) bool {
	if f.isStopped() && strings.Contains(got, stopsUnknown) {
		f.isLate = true
		return true
	}
	return isResult(got, want)
}

// startFleet starts the replicas. The session of their modern clients has the label private.
func startFleet(t *testing.T, tt failureTest) *fleet {
	t.Helper()
	f := &fleet{t: t, server: redistest.Start(t, tt.settings...), isDelayed: tt.isDelayed}
	for range tt.replicas {
		f.next = append(f.next, redistest.StartReplica(t, f.server))
	}
	f.relay = redistest.StartRelay(t, f.server)
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	policy, tasks := harness.PolicyFile(t, failurePolicy), startTaskBox(t, mcptest.Modern)
	f.config = func(i int, address string) string {
		return clustertest.Config(i, peers.FreeAddress(t), dir) + fmt.Sprintf(
			"[shared]\nurl = \"redis://%s\"\ntimeout = %q\n%s\n[deny]\nreasons = true\n",
			address, cmp.Or(tt.timeout, "5s"), strings.Join(tt.table, "\n")) + policy +
			limitsPlugin(`{ per = "tool", tools = ["update"], rate = 1, burst = 1000 }`) +
			harness.ScriptedServer("other") + harness.HTTPServer("own", tasks.url)
	}
	for i := range 2 {
		address := f.relay.Addr
		if tt.isAlone && i == 1 {
			address = f.server.Addr
		}
		f.all = append(f.all, startReplica(t, t.TempDir(), t.TempDir(), f.config(i, address)))
		f.all[i].client.Capabilities = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	}
	conn := mcptest.NewHTTP(f.all[1].URL)
	f.legacy = mcptest.NewClient(conn, "2025-11-25")
	t.Cleanup(func() { f.legacy.Close() })
	harness.Handshake(t, f.legacy)
	f.wantCall(0, "self", works)
	f.wantCall(1, "log", isPrivate)
	f.wantCall(1, createTask, works) // the first task
	return f
}

// promote lets a replica of the server take over. The old primary becomes a replica.
func (f *fleet) promote(t *testing.T) {
	t.Helper()
	f.next[0].Do(t, "REPLICAOF", "NO", "ONE")
	f.server.Follow(t, f.next[0])
	for _, s := range f.next[1:] {
		s.Follow(t, f.next[0])
	}
	f.relay.Switch(t, f.next[0])
}

// Requests of fleet.call that are no calls of a tool of box.
const (
	createTask = "create a task"
	getTask    = "get the task of replica 1"
)

// call calls a tool of box, or makes another request. It returns "" for a result, or the code and
// the reason of the error.
func (f *fleet) call(i int, what string) string {
	f.t.Helper()
	method, params := "tools/call", fmt.Sprintf(`{"name":"box__%s","arguments":{"tag":%d}}`, what,
		f.tag)
	switch what {
	case createTask:
		params = `{"name":"own__progress","arguments":{}}`
	case getTask:
		method, params = "tasks/get", `{"taskId":"own+t1"}`
	}
	m := harness.Request(f.t, f.all[i].client, method, params)
	if len(m.Error) == 0 {
		return ""
	}
	message := mcptest.Text(m.Error, "message")
	hint, hasHint := strings.CutPrefix(message, "refused by policy: ")
	if !hasHint {
		hint = cmp.Or(mcptest.Text(m.Error, "data", "gatekit", "reason"), message)
	}
	return string(mcptest.At(m.Error, "code")) + " " + hint
}

// submit makes a request that waits for approval, and returns its id. If the failure is delayed,
// the request may be denied before.
func (f *fleet) submit(i int) (id string) {
	f.t.Helper()
	f.tag++
	got := f.call(i, "echo")
	if f.isDelayed && got == notStored {
		eventually(f.t, "a request is stored for approval", func() bool {
			got = f.call(i, "echo")
			return got != notStored
		})
	}
	_, rest, _ := strings.Cut(got, "`gatekit approve ")
	id, _, ok := strings.Cut(rest, "`")
	if !ok {
		f.t.Fatalf("a request that needs approval got %q", got)
	}
	f.tag++ // so that other requests have another id
	return id
}

// isResult reports whether a result is the wanted one.
func isResult(got, want string) bool {
	code, text, _ := strings.Cut(want, " ")
	return got == want || want != works && strings.HasPrefix(got, code) &&
		strings.Contains(got, text)
}

// wantCall checks a call. If the failure is delayed, the call may be denied before.
func (f *fleet) wantCall(i int, tool, want string) {
	f.t.Helper()
	if f.isDelayed {
		f.awaitCall(i, tool, want)
		return
	}
	if got := f.call(i, tool); !f.isWanted(got, want) {
		f.t.Errorf("replica %d: a call of %s got %q, want %q", i, tool, got, want)
	}
}

// awaitCall calls a tool until it has the wanted result. Until then, the calls are denied because
// shared state is not available.
func (f *fleet) awaitCall(i int, tool, want string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("a call of %s gets %q", tool, want), func() bool {
		got := f.call(i, tool)
		if f.isWanted(got, want) {
			return true
		}
		if !isResult(got, unavailable) && got != notStored && !isResult(got, stopped) {
			f.t.Fatalf("replica %d: a call of %s got %q, want %q", i, tool, got, want)
		}
		return false
	})
}

// wantCommand runs a command beside a replica. want is a part of its error, or "" if it succeeds.
// If the failure is delayed, the command may fail before because shared state is not available.
func (f *fleet) wantCommand(i int, want string, args ...string) {
	f.t.Helper()
	output, ok := f.all[i].gatekit(args...)
	if f.isDelayed && want == works {
		eventually(f.t, "gatekit "+args[0]+" reaches the server", func() bool {
			if !ok && strings.Contains(output, "shared state is not available") {
				output, ok = f.all[i].gatekit(args...)
				return false
			}
			return true
		})
	}
	if ok != (want == works) || !strings.Contains(output, want) {
		f.t.Errorf("gatekit %s has the result %t, want the error %q:\n%s", args[0], ok, want,
			output)
	}
}

// wantStart starts one more replica, and stops it if it runs.
func (f *fleet) wantStart(tt failureTest) {
	f.t.Helper()
	config := f.config(2, f.relay.Addr)
	if tt.start == works {
		late := startReplica(f.t, f.t.TempDir(), f.t.TempDir(), config)
		if got := late.refusal(); !strings.Contains(got, "needs approval") {
			f.t.Errorf("a new replica answers a call with %q", got)
		}
		late.client.Close()
		late.Stop()
		return
	}
	g := harness.Prepare(f.t, "[listen]\nhttp = \"127.0.0.1:0\"\n"+config)
	if output, ok := run(f.t, g, "run"); ok || !strings.Contains(output, "[shared]: ") ||
		!strings.Contains(output, tt.start) {
		f.t.Errorf("a new replica has the result %t, want the error %q:\n%s", ok, tt.start, output)
	}
}

// wantProbes checks the probes of a replica. /readyz remembers its results for three seconds.
func (f *fleet) wantProbes(i int, ready string) {
	f.t.Helper()
	r := f.all[i]
	eventually(f.t, "/readyz has the line "+ready, func() bool {
		return strings.Contains(page(f.t, r.admin+"/readyz"), ready)
	})
	if got := page(f.t, strings.TrimSuffix(r.URL, "/mcp")+"/livez"); !strings.HasPrefix(got,
		"200") {
		f.t.Errorf("/livez is %s", got)
	}
}
