package replicas

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

// plan has the sizes and times of a run. Times are since the begin of the load.
type plan struct {
	legacy, modern, asked, subscribers int
	pace                               time.Duration // between two calls of one client
	canaries                           int           // pairs, at least
	canaryPace                         time.Duration // between two pairs of one of 4 workers
	held                               int           // pairs across each fault
	kill, back, killStore, end         time.Duration
	failover                           time.Duration // how long the store has no primary
	nginxOut                           time.Duration
}

var (
	shortPlan = plan{legacy: 12, modern: 12, asked: 6, subscribers: 3,
		pace: 250 * time.Millisecond, canaries: 40, canaryPace: 400 * time.Millisecond, held: 5,
		kill: 2 * time.Second, back: 4500 * time.Millisecond, killStore: 6500 * time.Millisecond,
		end: 10 * time.Second, failover: 700 * time.Millisecond, nginxOut: time.Second}
	longPlan = plan{legacy: 64, modern: 64, asked: 16, subscribers: 8,
		pace: time.Second, canaries: 1000, canaryPace: 150 * time.Millisecond, held: 25,
		kill: 20 * time.Second, back: 40 * time.Second, killStore: 48 * time.Second,
		end: 60 * time.Second, failover: 2 * time.Second, nginxOut: 5 * time.Second}
)

// soon is the longest time without new sessions after a replica was killed, on a machine that has
// nothing else to do.
const soon = 2 * time.Second

// TestReplicasSurviveKills puts a load of both eras on three replicas behind a balancer. It kills
// one replica, starts it again, and kills the primary of the store. No call may be run twice, each
// answered call was run once, each run has a record that was made before, and the logs verify. Only
// calls that were in flight at the killed replica, and those that need the store while it has no
// primary, may fail.
func TestReplicasSurviveKills(t *testing.T) {
	harness.Long(t, "kills a replica and the store under load")
	p := shortPlan
	if isLong() {
		p = longPlan
	}
	for _, b := range []struct {
		name  string
		start func(t *testing.T, urls ...string) string
	}{
		{"haproxy", func(t *testing.T, urls ...string) string {
			return clustertest.StartHAProxy(t, urls...)
		}},
		{"nginx", func(t *testing.T, urls ...string) string {
			return clustertest.StartNginx(t, p.nginxOut, urls...)
		}},
	} {
		t.Run(b.name, func(t *testing.T) {
			f := startFleet(t, harness.PolicyFile(t, policy))
			r := &run{plan: p, probesDead: b.name == "nginx", canary: newCanary(f)}
			ctx, end := context.WithCancel(t.Context())
			r.load = &load{fleet: f, url: "http://" + b.start(t, f.urls()...) + "/mcp", ctx: ctx,
				pace: p.pace}
			r.faults(end)
			r.judge()
		})
	}
}

// run is one run of the plan at one balancer.
type run struct {
	plan
	*load
	canary      *canary
	probesDead  bool // whether the balancer sends requests to a dead replica, to see if it is back
	subscribers []*subscriber

	victim    int       // the replica that is killed
	killing   time.Time // just before the replica had ended
	returned  time.Time // when it served again
	storeGone time.Time
	storeBack time.Time
	reopened  time.Duration // from the kill to the first new session
	limit     time.Duration // soon, and the longest time that a new session and its call took
}

// faults runs the load with all faults.
func (r *run) faults(end context.CancelFunc) {
	t := r.t
	var clients sync.WaitGroup
	defer clients.Wait()
	defer end()
	r.startClients(&clients)
	began := time.Now()
	until := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }

	until(r.kill - time.Duration(r.held)*20*time.Millisecond)
	r.victim = r.withMostSessions()
	sendHeld := r.canary.across(r.held, func() int { return r.victim })
	until(r.kill)
	g := r.replicas[r.victim]
	g.Killed = true
	r.canary.down.Store(int64(r.victim))
	r.killing = time.Now()
	g.Cmd.Process.Kill()
	<-g.Exited
	r.mu.Lock()
	r.killed = time.Now()
	r.mu.Unlock()
	sendHeld()

	until(r.back)
	g.KillChildren() // they have ended by now, with their standard input
	again := g.StartAgain()
	r.replicas[r.victim] = again
	r.returned = time.Now()
	r.canary.down.Store(-1)

	until(r.killStore)
	sendHeld = r.canary.across(r.held, func() int { a, _ := r.canary.two(); return a })
	r.storeGone = time.Now()
	r.primary.Kill(t)
	time.Sleep(r.failover) // until a watchdog has noticed
	r.copy.Do(t, "REPLICAOF", "NO", "ONE")
	r.relay.Switch(t, r.copy)
	redistest.StartReplica(t, r.copy) // copies = 1
	r.storeBack = time.Now()
	sendHeld()

	until(r.end)
	for late := time.Now().Add(10 * time.Minute); int(r.canary.denied.Load()) < r.canaries &&
		time.Now().Before(late); { // a busy machine takes longer
		time.Sleep(100 * time.Millisecond)
	}
	r.announceChange()
}

// withMostSessions returns the replica with most sessions of legacy clients. Another replica may
// have none, by chance, and then no client would learn that its session has ended.
func (r *run) withMostSessions() (most int) {
	opened, at := map[string]time.Time{}, map[string]int{} // the last session of each client
	for i, g := range r.replicas {
		for _, record := range g.Records() {
			p := record.Principal
			if record.String() == "to_client response initialize - - answer" &&
				strings.Contains(p, "#legacy-") && record.Time.After(opened[p]) {
				opened[p], at[p] = record.Time, i
			}
		}
	}
	sessions := make([]int, len(r.replicas))
	for _, i := range at {
		if sessions[i]++; sessions[i] > sessions[most] {
			most = i
		}
	}
	r.t.Logf("legacy clients have %v sessions at the replicas", sessions)
	return most
}

// startClients starts all clients, and waits until the subscribers have subscribed.
func (r *run) startClients(clients *sync.WaitGroup) {
	asks := []string{"", "sampling", "elicitation", "roots"}
	for i := range r.legacy {
		// Opening a session takes as many requests as there are replicas. Without a delay, the
		// balancer would open all sessions at the same replica.
		time.Sleep(r.plan.pace / time.Duration(r.legacy))
		c := &caller{load: r.load, name: fmt.Sprintf("legacy-%d", i), revision: "2025-11-25"}
		clients.Go(func() {
			c.work(func(n int) (string, string, bool) {
				server := []string{stdioServer, legacyServer, modernServer}[(i+n)%3]
				return server, asks[(i+n/3)%4], server != modernServer && n%4 == 0
			})
		})
	}
	for i := range r.modern {
		c := &caller{load: r.load, name: fmt.Sprintf("modern-%d", i), revision: mcptest.Modern}
		servers := []string{modernServer, legacyServer}
		if i%4 == 0 {
			servers = append(servers, stdioServer)
		}
		clients.Go(func() {
			c.work(func(n int) (string, string, bool) { return servers[n%len(servers)], "", false })
		})
	}
	for i := range r.asked {
		c := &caller{load: r.load, name: fmt.Sprintf("asked-%d", i), revision: mcptest.Modern}
		server := []string{modernServer, legacyServer, stdioServer}[i%3]
		clients.Go(func() {
			c.work(func(n int) (string, string, bool) { return server, asks[1+n%3], false })
		})
	}
	for i := range r.plan.subscribers {
		s := &subscriber{caller: caller{load: r.load, name: fmt.Sprintf("subscriber-%d", i),
			revision: mcptest.Modern}}
		r.subscribers = append(r.subscribers, s)
		clients.Go(s.follow)
	}
	for range 4 {
		clients.Go(func() {
			for r.ctx.Err() == nil {
				r.canary.pair()
				time.Sleep(r.canaryPace)
			}
		})
	}
	clients.Go(r.probe)
	r.awaitSubscriptions()
}

func (r *run) awaitSubscriptions() {
	harness.WaitUntilAtMost(r.t, "clients that are not subscribed", 0, func() (n int) {
		for _, s := range r.subscribers {
			if !s.isOpen() {
				n++
			}
		}
		return n
	})
}

// probe opens a new session every 100 ms, and makes a call in it.
func (r *run) probe() {
	for n := 0; r.ctx.Err() == nil; n++ {
		c := &caller{load: r.load, name: fmt.Sprintf("probe-%d", n), revision: "2025-11-25"}
		if c.open() {
			o := c.call(legacyServer, c.name+"-call", "", false)
			r.add(o)
			r.mu.Lock()
			if !r.killed.IsZero() && r.reopened == 0 && o.fault == "" {
				r.reopened = o.ended.Sub(r.killed)
			}
			r.mu.Unlock()
		}
		c.close()
		time.Sleep(100 * time.Millisecond)
	}
}

// announceChange checks that all subscribers get a notification after all faults. A notification
// on which the policies had no verdict in time is lost, so another one is sent.
func (r *run) announceChange() {
	r.t.Helper()
	r.awaitSubscriptions()
	c, _ := r.connect(r.url, "changer", mcptest.Modern)
	defer c.Close()
	for attempt := 1; ; attempt++ {
		late := len(r.lateVerdicts())
		missing := r.notified(c, fmt.Sprint("change-", attempt))
		if len(missing) == 0 {
			return
		}
		if len(r.lateVerdicts()) == late || attempt == 10 {
			r.reportMissing(missing)
			return
		}
	}
}

// reportMissing fails the test because of subscribers that are not notified, unless the policies
// had no verdict in time on a message of the subscriber, such as the subscription at the server.
func (r *run) reportMissing(names []string) {
	r.t.Helper()
	for _, name := range names {
		late, records := false, ""
		for i, g := range r.replicas {
			for _, record := range g.Records() {
				if strings.HasSuffix(record.Principal, "#"+name) {
					late = late || strings.Contains(record.Error, "no verdict within")
					records += fmt.Sprintf("\n\treplica %d: %s %s", i, record, record.Error)
				}
			}
		}
		if late {
			r.t.Logf("no change reached %s: no verdict in time", name)
		} else {
			r.t.Errorf("after all faults, no change reached %s:%s", name, records)
		}
	}
}

// notified announces a change of the tools, and returns the subscribers that are not notified.
func (r *run) notified(c *mcptest.Client, id string) (missing []string) {
	var marks []int
	for _, s := range r.subscribers {
		marks = append(marks, s.client.Mark())
	}
	ctx, cancel := context.WithTimeout(r.ctx, callTime)
	defer cancel()
	_, err := c.Tool(ctx, modernServer+"__work", fmt.Sprintf(`{"id":%q,"change":true}`, id))
	if err != nil {
		return []string{"the server: " + err.Error()}
	}
	for i, s := range r.subscribers {
		if _, err := s.client.AwaitMethod(ctx, marks[i],
			"notifications/tools/list_changed"); err != nil {
			missing = append(missing, s.name)
		}
	}
	return missing
}

// judge checks what has happened, after the load.
func (r *run) judge() {
	t := r.t
	t.Helper()
	r.verify()
	r.limit = soon
	for _, o := range r.outcomes {
		if strings.HasPrefix(o.id, "probe-") && o.fault == "" {
			r.limit = max(r.limit, soon+2*o.ended.Sub(o.began))
		}
	}
	answered, reasons, late := 0, map[string]int{}, r.lateVerdicts()
	for _, o := range r.outcomes {
		ran := r.ledger.count(o.id)
		if o.fault == "" {
			answered++
			if o.server != "" && ran != 1 {
				t.Errorf("the answered call %s was run %d times", o.id, ran)
			}
			continue
		}
		reason := r.excuse(o, ran)
		if slices.ContainsFunc(late, o.includes) {
			reason = "no verdict in time"
		}
		if reason == "" {
			t.Errorf("%v after the kill of the replica and %v after that of the store, a call "+
				"failed that was run %d times: %s", o.ended.Sub(r.killed).Round(time.Millisecond),
				o.ended.Sub(r.storeGone).Round(time.Millisecond), ran, o)
		}
		reasons[reason]++
		t.Logf("%v after the kill: %s (%s)", o.ended.Sub(r.killed).Round(time.Millisecond), o,
			reason)
	}
	runs := r.ledger.check(t)
	if r.reopened == 0 || r.reopened > r.limit {
		t.Errorf("a new session worked %v after the kill, want at most %v", r.reopened, r.limit)
	}
	if r.ended == 0 {
		t.Error("no client learned that its session has ended")
	}
	for _, s := range r.subscribers {
		for _, g := range s.breaks[1:] {
			if g.to.Sub(g.from) > r.limit || g.from.Before(r.killing) ||
				g.from.After(r.killed.Add(r.limit)) {
				t.Errorf("%s had no subscription from %v to %v after the kill", s.name,
					g.from.Sub(r.killed), g.to.Sub(r.killed))
			}
		}
	}
	summary := r.canary.check(r.canaries)
	t.Logf("%d calls answered, %d run, %d ended sessions, first new session %v after the kill; "+
		"failed: %v\ncanaries: %s", answered, runs, r.ended,
		r.reopened.Round(time.Millisecond), reasons, summary)
}

// excuse returns why a call may have failed, or "".
func (r *run) excuse(o outcome, ran int) string {
	wasInFlight := !o.began.After(r.killed) && !o.ended.Before(r.killing)
	refused := r.killed.Add(r.limit)
	if r.probesDead {
		refused = r.returned
	}
	switch {
	case strings.Contains(o.fault, noChange) && o.opened.Before(r.killed) &&
		!o.ended.Before(r.killing):
		return "the stream was at the killed replica"
	case wasInFlight && (slices.Contains([]int{0, http.StatusOK, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusNotFound, http.StatusBadRequest}, o.status)):
		return "in flight at the killed replica"
	// A call that asks the client has run before the client sends its answers.
	case (ran == 0 || o.asks && ran == 1) && !o.isGatekits() && o.ended.After(r.killing) &&
		o.began.Before(refused) && (o.status == http.StatusBadGateway ||
		o.status == http.StatusServiceUnavailable || strings.HasPrefix(o.fault, lostMessage) ||
		o.isBroken()):
		return "sent to the dead replica by the balancer"
	case o.balancerRefusedStream() && o.opened.Before(refused) && !o.ended.Before(r.killing):
		return "the stream was sent to the dead replica by the balancer"
	case ran == 0 && o.asks && o.server == modernServer &&
		strings.Contains(o.fault, "shared state is not available"):
		if o.ended.After(r.storeGone) && o.began.Before(r.storeBack.Add(r.limit)) {
			return "answers to a modern server without the store"
		}
		if o.ended.Sub(o.began) >= storeTimeout {
			return "the store did not answer in time"
		}
	}
	return ""
}
