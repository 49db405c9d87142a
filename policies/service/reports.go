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

// Bounds of decision logs.
const (
	maxQueued           = 1024             // decisions that wait for logDecisions
	maxText             = 256              // bytes of one text in a decision log event
	maxUpload           = 1 << 20          // compressed bytes of one request
	flushTimeout        = 3 * time.Second  // for sending the buffered decisions at the end
	dropWarningInterval = 10 * time.Second // between warnings about dropped decisions
)

// DecisionLogs configures where decision logs are sent.
type DecisionLogs struct {
	Endpoint Endpoint
	Resource string // the path below the URL
	Buffer   int    // largest number of decisions that wait for the service; the oldest is dropped

	MinDelay, MaxDelay time.Duration // bounds of the time between requests, in whole seconds
}

// reporter runs OPA's plugins that send decision logs and status. A nil reporter sends nothing.
type reporter struct {
	log        *slog.Logger
	manager    *plugins.Manager
	transports []*transport
	status     *status.Plugin
	logs       *logs.Plugin
	metrics    metrics.Metrics
	queue      chan *server.Info
	dropped    atomic.Uint64 // decisions that were lost: the queue was full, or Log failed
	stopping   chan struct{} // closed to stop logDecisions
	running    sync.WaitGroup

	mu       sync.Mutex
	statuses map[string]*bundle.Status // a status is replaced, never modified
}

// The names of the services in the configuration of OPA's plugins.
const (
	logService    = "decision_logs"
	statusService = "status"
)

func newReporter(ctx context.Context, o Options) (*reporter, error) {
	r := &reporter{log: o.Log, metrics: metrics.New(), queue: make(chan *server.Info, maxQueued),
		stopping: make(chan struct{}), statuses: map[string]*bundle.Status{}}
	transports, services := map[string]*transport{}, map[string]any{}
	for name, endpoint := range r.endpoints(o) {
		t, err := newTransport(endpoint, o.Version, nil)
		if err != nil {
			return nil, err
		}
		transports[name] = t
		r.transports = append(r.transports, t)
		services[name] = map[string]any{"url": endpoint.URL,
			"credentials": map[string]string{"plugin": "to/" + name}}
	}
	settings, err := json.Marshal(map[string]any{"services": services,
		"labels": map[string]string{"app": "gatekit", "gatekit_version": o.Version}})
	if err != nil {
		return nil, err
	}
	opaLog := logger{o.Log}
	if r.manager, err = plugins.New(settings, rand.Text(), inmem.New(), plugins.Logger(opaLog),
		plugins.ConsoleLogger(opaLog)); err != nil {
		return nil, err
	}
	for name, t := range transports {
		r.manager.Register("to/"+name, authPlugin{t, "to/" + name, r.manager})
	}
	if err = r.plugins(o); err == nil {
		err = r.manager.Start(context.WithoutCancel(ctx)) // ctx may end when the start is done
	}
	if err != nil {
		r.manager.Stop(ctx)
		return nil, err
	}
	r.running.Go(r.logDecisions)
	return r, nil
}

// endpoints returns the configured endpoints. The keys are the names of the services.
func (r *reporter) endpoints(o Options) map[string]Endpoint {
	all := map[string]Endpoint{}
	if o.DecisionLogs != nil {
		all[logService] = o.DecisionLogs.Endpoint
	}
	if o.Status != nil {
		all[statusService] = *o.Status
	}
	return all
}

// plugins creates OPA's plugins and registers them in the order in which they must stop: the
// decision log plugin reports to the status plugin, and waits for it.
func (r *reporter) plugins(o Options) error {
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
		r.logs = logs.New(config, r.manager).WithMetrics(r.metrics)
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
		r.status = status.New(config, r.manager).WithMetrics(r.metrics)
		r.manager.Register(status.Name, r.status)
	}
	return nil
}

// authPlugin is a transport that OPA's plugin manager can use as a plugin.
type authPlugin struct {
	*transport
	name    string
	manager *plugins.Manager
}

var _ rest.HTTPAuthPlugin = authPlugin{}

// Start implements plugins.Plugin.
func (s authPlugin) Start(context.Context) error {
	s.manager.UpdatePluginStatus(s.name, &plugins.Status{State: plugins.StateOK})
	return nil
}

// Stop implements plugins.Plugin.
func (authPlugin) Stop(context.Context) {}

// Reconfigure implements plugins.Plugin.
func (authPlugin) Reconfigure(context.Context, any) {}

// logDecisions turns the queued decisions into decision log events, and logs how many decisions
// were dropped. It runs in its own goroutine, so that no message waits for it.
func (r *reporter) logDecisions() {
	tick := time.NewTicker(dropWarningInterval)
	defer tick.Stop()
	var reported uint64
	for {
		select {
		case d := <-r.queue:
			if err := r.logs.Log(context.Background(), d); err != nil {
				r.log.Debug("decision event failed", "error", err)
				r.dropped.Add(1)
			}
			continue
		case <-tick.C:
			reported = r.warnDropped(reported)
			continue
		case <-r.stopping:
		}
		for len(r.queue) > 0 {
			if err := r.logs.Log(context.Background(), <-r.queue); err != nil {
				r.dropped.Add(1)
			}
		}
		r.warnDropped(reported)
		return
	}
}

// warnDropped returns the number of dropped decisions, and logs it if it is greater than reported.
func (r *reporter) warnDropped(reported uint64) uint64 {
	lost := r.dropped.Load()
	if n, ok := r.metrics.Counter(
		"decision_logs_dropped_buffer_size_limit_exceeded").Value().(uint64); ok {
		lost += n
	}
	if lost > reported {
		r.log.Warn("decisions dropped: the decision log service is too slow or down; the audit "+
			"log has them", "dropped", lost)
	}
	return lost
}

// stop sends the buffered decisions, waits for flushTimeout at most, and stops the plugins.
func (r *reporter) stop() {
	close(r.stopping)
	r.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for _, t := range r.transports {
		defer context.AfterFunc(ctx, t.close)() // OPA's plugins wait for their requests
	}
	r.manager.Stop(ctx)
	for _, t := range r.transports {
		t.close()
		t.inner.CloseIdleConnections()
	}
}

// updateBundleStatus reports the result of a request for a bundle. The parameter active is the
// bundle that the request activated, or nil if it activated none.
func (r *reporter) updateBundleStatus(name string, active *policies.Bundle, err error) {
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

// WithDecisionLog returns a stage that evaluates the policies and sends their decisions to the
// decision log service. A decision contains the message's method, server, name and principal, and
// the rule that decided. It does not contain the content of the message or the reason, because a
// reason may quote the content. No message waits for the service.
func (c *Client) WithDecisionLog(stage *policies.Stage) pipeline.Stage {
	if c == nil || c.reports == nil || c.reports.logs == nil {
		return stage
	}
	revisions := map[string]server.BundleInfo{}
	for _, b := range stage.Bundles() {
		revisions[b.Name] = server.BundleInfo{Revision: b.Revision}
	}
	return loggingStage{stage, c.reports, revisions}
}

// loggingStage is the stage that WithDecisionLog returns.
type loggingStage struct {
	stage     *policies.Stage
	reports   *reporter
	revisions map[string]server.BundleInfo
}

// NeedsList implements pipeline.ListReader.
func (l loggingStage) NeedsList(m *mcp.Message, list string) bool {
	return l.stage.NeedsList(m, list)
}

// Inspect implements pipeline.Stage.
func (l loggingStage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	began, timing := time.Now(), metrics.New()
	timing.Timer(metrics.RegoQueryEval).Start()
	v, err := l.stage.Inspect(ctx, m)
	timing.Timer(metrics.RegoQueryEval).Stop()
	result := map[string]any{"action": action(ctx, v, err)}
	if rule := ruleOfReason(v.Reason); rule != "" {
		result["rule"] = rule
	}
	if err != nil {
		result["fault"] = true
	}
	var input, results any = messageSummary(m), result
	select {
	case l.reports.queue <- &server.Info{
		DecisionID: rand.Text(), Path: "gatekit", Timestamp: began.UTC(), Bundles: l.revisions,
		Input: &input, Results: &results, Metrics: timing,
		Custom: map[string]any{"policies": l.stage.Digest(), "session": truncate(m.Session),
			"exchange": truncate(m.Exchange)},
	}:
	default:
		l.reports.dropped.Add(1)
	}
	return v, err
}

// action returns the policies' decision, named like the action of an audit record.
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

// messageSummary returns the part of a message that a decision log event contains.
func messageSummary(m *mcp.Message) map[string]any {
	name, _, _ := strings.Cut(m.Name, "?")
	if strings.Contains(m.Method, "resources/") || m.Method == "completion/complete" {
		name = publicURI(m.Name)
	}
	all := map[string]any{
		"direction": m.Direction.String(), "kind": m.Kind.String(), "method": truncate(m.Method),
		"server": truncate(m.Server), "name": truncate(name),
		"principal": truncate(m.Principal.ID()),
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == "" })
	return all
}

// publicURI returns only the scheme, host and path of a URI, because other parts can be secret. If
// the URI has neither a host nor an absolute path, publicURI returns only the scheme, because the
// rest can be content, such as in data: URIs.
func publicURI(uri string) string {
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
		// a password can contain a slash
		if at := strings.LastIndexByte(after, '@'); at >= 0 && !hostWithoutUser.MatchString(after) {
			after = after[at+1:]
		}
		rest = "//" + after
	}
	return scheme + ":" + rest
}

// hostWithoutUser matches the part of a URI after `//` if the URI contains no user. The part begins
// with a host, which a port may follow, and with the start of the path.
var hostWithoutUser = regexp.MustCompile(`^([^/\\@:]*|\[[^/\\@]*\])(:[0-9]*)?([/\\]|$)`)

// reasonRule matches the name of the rule at the start of a reason.
var reasonRule = regexp.MustCompile(`^(?:needs approval: )?([\w/-]+)(?:$|; |: )`)

// ruleOfReason returns the first rule in a verdict's reason, or "".
func ruleOfReason(reason string) string {
	if m := reasonRule.FindStringSubmatch(reason); m != nil {
		return truncate(m[1])
	}
	return ""
}

// truncate returns at most the first maxText bytes of a text, as valid UTF-8.
func truncate(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }
