package service

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"

	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
	"github.com/open-policy-agent/opa/v1/plugins/status"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// Bounds of what is sent.
const (
	maxQueued   = 1024            // decisions that wait to be made events
	maxText     = 256             // bytes of a name in an event
	maxUpload   = 1 << 20         // bytes of one request, packed
	flushFor    = 3 * time.Second // at the end
	reportDrops = 10 * time.Second
)

// DecisionLogs say where decisions are told.
type DecisionLogs struct {
	Endpoint Endpoint
	Resource string // its path below the URL
	// decisions that wait for the service; of more the oldest are dropped, and counted
	Buffer int

	MinDelay, MaxDelay time.Duration // between requests; whole seconds
}

// reports are OPA's plugins that send decision logs and status. The nil one sends nothing.
type reports struct {
	log     *slog.Logger
	manager *plugins.Manager
	sends   []*transport
	status  *status.Plugin
	logs    *logs.Plugin
	count   metrics.Metrics
	queue   chan *server.Info
	lost    atomic.Uint64 // decisions that found the queue full
	ended   chan struct{} // closed to end what makes events
	done    sync.WaitGroup

	mu       sync.Mutex
	statuses map[string]*bundle.Status // none is changed: a new one takes its place
}

// The services, as OPA's plugins call them.
const (
	logService    = "decision_logs"
	statusService = "status"
)

func newReports(ctx context.Context, o Options) (*reports, error) {
	r := &reports{log: o.Log, count: metrics.New(), queue: make(chan *server.Info, maxQueued),
		ended: make(chan struct{}), statuses: map[string]*bundle.Status{}}
	senders, services := map[string]*transport{}, map[string]any{}
	for name, remote := range r.remotes(o) {
		t, err := newTransport(remote, o.Version, nil)
		if err != nil {
			return nil, err
		}
		senders[name] = t
		r.sends = append(r.sends, t)
		services[name] = map[string]any{"url": remote.URL,
			"credentials": map[string]string{"plugin": "to/" + name}}
	}
	settings, err := json.Marshal(map[string]any{"services": services,
		"labels": map[string]string{"app": "gatekit", "gatekit_version": o.Version}})
	if err != nil {
		return nil, err
	}
	quiet := logger{o.Log}
	if r.manager, err = plugins.New(settings, rand.Text(), inmem.New(), plugins.Logger(quiet),
		plugins.ConsoleLogger(quiet)); err != nil {
		return nil, err
	}
	for name, t := range senders {
		r.manager.Register("to/"+name, sender{t, "to/" + name, r.manager})
	}
	if err = r.plugins(o); err == nil {
		err = r.manager.Start(context.WithoutCancel(ctx)) // the caller's may end with the start
	}
	if err != nil {
		r.manager.Stop(ctx)
		return nil, err
	}
	r.done.Go(r.events)
	return r, nil
}

func (r *reports) remotes(o Options) map[string]Endpoint {
	all := map[string]Endpoint{}
	if o.DecisionLogs != nil {
		all[logService] = o.DecisionLogs.Endpoint
	}
	if o.Status != nil {
		all[statusService] = *o.Status
	}
	return all
}

// plugins makes OPA's, and registers them. They are stopped in that order: decision logs tell how
// they fare to the status, and wait until it has heard.
func (r *reports) plugins(o Options) error {
	if d := o.DecisionLogs; d != nil {
		raw, err := json.Marshal(map[string]any{"service": logService, "resource": d.Resource,
			"reporting": map[string]any{
				"buffer_type": "event", "buffer_size_limit_events": d.Buffer,
				"upload_size_limit_bytes": maxUpload,
				"min_delay_seconds":       int64(d.MinDelay / time.Second),
				"max_delay_seconds":       int64(d.MaxDelay / time.Second),
			}})
		if err != nil {
			return err
		}
		config, err := logs.ParseConfig(raw, []string{logService}, nil)
		if err != nil {
			return err
		}
		r.logs = logs.New(config, r.manager).WithMetrics(r.count)
		r.manager.Register(logs.Name, r.logs)
	}
	if o.Status != nil {
		raw, err := json.Marshal(map[string]any{"service": statusService})
		if err != nil {
			return err
		}
		config, err := status.ParseConfig(raw, []string{statusService}, nil)
		if err != nil {
			return err
		}
		r.status = status.New(config, r.manager).WithMetrics(r.count)
		r.manager.Register(status.Name, r.status)
	}
	return nil
}

// sender is a transport as OPA's manager knows it: a plugin.
type sender struct {
	*transport
	name    string
	manager *plugins.Manager
}

var _ rest.HTTPAuthPlugin = sender{}

// Start implements plugins.Plugin.
func (s sender) Start(context.Context) error {
	s.manager.UpdatePluginStatus(s.name, &plugins.Status{State: plugins.StateOK})
	return nil
}

// Stop implements plugins.Plugin.
func (sender) Stop(context.Context) {}

// Reconfigure implements plugins.Plugin.
func (sender) Reconfigure(context.Context, any) {}

// events makes events of decisions, beside the messages, and says how many were dropped.
func (r *reports) events() {
	tick := time.NewTicker(reportDrops)
	defer tick.Stop()
	var said uint64
	for {
		select {
		case d := <-r.queue:
			if err := r.logs.Log(context.Background(), d); err != nil {
				r.log.Debug("make an event of a decision", "error", err)
				r.lost.Add(1)
			}
			continue
		case <-tick.C:
			said = r.sayLost(said)
			continue
		case <-r.ended:
		}
		for len(r.queue) > 0 {
			if err := r.logs.Log(context.Background(), <-r.queue); err != nil {
				r.lost.Add(1)
			}
		}
		r.sayLost(said)
		return
	}
}

// sayLost says how many decisions were dropped, where these are more than were said, and answers
// how many.
func (r *reports) sayLost(said uint64) uint64 {
	lost := r.lost.Load()
	if n, ok := r.count.Counter(
		"decision_logs_dropped_buffer_size_limit_exceeded").Value().(uint64); ok {
		lost += n
	}
	if lost > said {
		r.log.Warn("decisions were not sent: more were made than their service takes, or it is "+
			"down; the audit log has them", "dropped", lost)
	}
	return lost
}

// stop sends what waits, as far as the service takes it in time.
func (r *reports) stop() {
	close(r.ended)
	r.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), flushFor)
	defer cancel()
	for _, t := range r.sends {
		defer context.AfterFunc(ctx, t.end)() // OPA's plugins wait for their requests
	}
	r.manager.Stop(ctx)
	for _, t := range r.sends {
		t.end()
		t.inner.CloseIdleConnections()
	}
}

// settled tells what became of a request for a bundle; active is what it put in force, nil for
// nothing.
func (r *reports) settled(name string, active *policies.Bundle, err error) {
	if r == nil || r.status == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &bundle.Status{Name: name}
	if before := r.statuses[name]; before != nil {
		*next = *before
	}
	next.SetRequest()
	next.SetError(err)
	if err == nil {
		next.LastSuccessfulRequest = next.LastRequest
		if active != nil {
			next.SetDownloadSuccess()
			next.SetActivateSuccess(active.Revision)
		}
	}
	r.statuses[name] = next
	r.status.BulkUpdateBundleStatus(maps.Clone(r.statuses))
}

// WithDecisionLog is a stage that judges as the policies do, and tells their decisions where
// Options.DecisionLogs say: what a message is about, and what was decided by which rule; no content
// and no reason, which may quote some. No message waits for that.
func (c *Client) WithDecisionLog(stage *policies.Stage) pipeline.Stage {
	if c == nil || c.reports == nil || c.reports.logs == nil {
		return stage
	}
	revisions := map[string]server.BundleInfo{}
	for _, b := range stage.Bundles() {
		revisions[b.Name] = server.BundleInfo{Revision: b.Revision}
	}
	return logged{stage, c.reports, revisions}
}

type logged struct {
	stage     *policies.Stage
	reports   *reports
	revisions map[string]server.BundleInfo
}

// Inspect implements pipeline.Stage.
func (l logged) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	at, took := time.Now(), metrics.New()
	took.Timer(metrics.RegoQueryEval).Start()
	v, err := l.stage.Inspect(ctx, m)
	took.Timer(metrics.RegoQueryEval).Stop()
	result := map[string]any{"action": action(ctx, v, err)}
	if rule := ruleOf(v.Reason); rule != "" {
		result["rule"] = rule
	}
	if err != nil {
		result["fault"] = true
	}
	var input, results any = about(m), result
	select {
	case l.reports.queue <- &server.Info{
		DecisionID: rand.Text(), Path: "gatekit", Timestamp: at.UTC(), Bundles: l.revisions,
		Input: &input, Results: &results, Metrics: took,
		Custom: map[string]any{"policies": l.stage.Digest(), "session": cut(m.Session),
			"exchange": cut(m.Exchange)},
	}:
	default:
		l.reports.lost.Add(1)
	}
	return v, err
}

// action is what the policies decided, in the record's words.
func action(ctx context.Context, v pipeline.Verdict, err error) string {
	switch {
	case err != nil:
		return "deny"
	case v.Action == pipeline.Ask && !pipeline.IsApproved(ctx):
		return "ask"
	case v.Action == pipeline.Allow, v.Action == pipeline.Ask:
		return "pass"
	case v.Action == pipeline.Modify:
		return "modify"
	}
	return "deny"
}

// about says what a message is about.
func about(m *mcp.Message) map[string]any {
	name, _, _ := strings.Cut(m.Name, "?")
	if strings.Contains(m.Method, "resources/") || m.Method == "completion/complete" {
		name = place(m.Name)
	}
	all := map[string]any{
		"direction": m.Direction.String(), "kind": m.Kind.String(), "method": cut(m.Method),
		"server": cut(m.Server), "name": cut(name), "principal": cut(m.Principal),
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == "" })
	return all
}

// place is the scheme, the host and the path of a URI: what comes beside them can be secret, and
// what has neither host nor path can be all content.
func place(uri string) string {
	if at := strings.IndexAny(uri, "?#"); at >= 0 {
		uri = uri[:at]
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || strings.Contains(scheme, "/") {
		return uri
	}
	if !strings.HasPrefix(rest, "/") {
		return scheme + ":"
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		// a password can hold a slash
		if at := strings.LastIndexByte(after, '@'); at >= 0 && !port.MatchString(after) {
			after = after[at+1:]
		}
		rest = "//" + after
	}
	return scheme + ":" + rest
}

// port is how what follows the slashes of a URI begins where it has no user: what comes before a
// path is a host, and perhaps the number of a port.
var port = regexp.MustCompile(`^([^/\\@:]*|\[[^/\\@]*\])(:[0-9]*)?([/\\]|$)`)

// rules are the names of packages: before the reason that they give, or alone.
var rules = regexp.MustCompile(`^(?:needs approval: )?([\w/-]+)(?:$|; |: )`)

// ruleOf is the first rule that a verdict was given for.
func ruleOf(reason string) string {
	if m := rules.FindStringSubmatch(reason); m != nil {
		return cut(m[1])
	}
	return ""
}

// cut bounds a text.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }
