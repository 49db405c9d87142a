package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// Stage is a plugin in use. It implements pipeline.Stage.
type Stage struct {
	spec    Spec
	process *supervisor
	uses    int // number of values of Set that contain the stage; guarded by Host.mu

	// These fields are set when the stage is made. They do not change afterwards.
	counts     bool // in the state that replicas share
	wants      pipeline.Wants
	renames    pipeline.Renames
	restore    *pipeline.Restore
	visibility proto.Visibility
	reuses     bool // verdicts on definitions may be used again
	// If it is not 0, a verdict on a list depends on the other lists of the principal, and the
	// stage remembers these for this number of principals.
	comparesPrincipals int
	selfTest           *pb.Canary // nil when the plugin has none

	failureMu       sync.Mutex // guards the fields below
	nextFailure     time.Time  // before this time, failures are counted, but not logged
	skippedFailures int        // number of failures since the last logged failure
}

// failureInterval is the shortest time between two log lines about failures of one stage. A client
// can cause many failures.
const failureInterval = time.Minute

// logFailure logs that the plugin failed to inspect a message, and why. It logs at most one failure
// in failureInterval. The log line also has the number of failures that were not logged since the
// previous log line.
func (s *Stage) logFailure(err error) {
	s.failureMu.Lock()
	defer s.failureMu.Unlock()
	now := time.Now()
	if now.Before(s.nextFailure) {
		s.skippedFailures++
		return
	}
	attrs := []any{"plugin", s.spec.Name, "error", display.Clip(err.Error(), maxReason)}
	if s.skippedFailures > 0 {
		attrs = append(attrs, "not_logged", s.skippedFailures)
	}
	s.process.host.options.Log.Warn("plugin failed", attrs...)
	s.nextFailure, s.skippedFailures = now.Add(failureInterval), 0
}

// hasSameAccess reports whether the stage has the grants and servers of spec.
func (s *Stage) hasSameAccess(spec Spec) bool {
	return s.spec.Grants == spec.Grants && s.spec.NoRestore == spec.NoRestore &&
		slices.Equal(s.spec.Servers, spec.Servers)
}

// accept stores what the plugin declared about the stage, limited to the stage's servers and
// grants. Renames, and restored values, without a grant are an error.
func (s *Stage) accept(r *pb.ConfigureResponse) error {
	wants, err := proto.ToWants(r.Wants)
	if err != nil {
		return err
	}
	s.wants = limitServers(wants, s.spec.Servers)
	g := s.spec.Grants
	s.visibility = proto.Visibility{Body: g.Body && r.Needs.GetBody(),
		Request: g.Request && r.Needs.GetRequest(), Principal: g.Principal}
	// The request is not a part of what a kept verdict holds for, and what a verdict does in the
	// state that replicas share has to be done each time.
	s.reuses = r.Reuse != nil && !s.visibility.Request && !s.counts
	s.comparesPrincipals = int(min(r.Reuse.GetPrincipals(), maxPrincipals))
	s.selfTest = r.Canary
	s.renames = pipeline.Renames{Tools: r.Renames.GetTools(), Prompts: r.Renames.GetPrompts()}
	if !g.Rename && len(s.renames.Tools)+len(s.renames.Prompts) > 0 {
		return errors.New(`the plugin renames tools or prompts, but "may" does not have "rename"`)
	}
	if s.restore, err = proto.ToRestore(r.Restore); err != nil {
		return err
	}
	switch {
	case s.restore == nil:
	case !g.Restore:
		return errors.New(`the plugin restores redacted values, but "may" does not have "restore"`)
	case s.spec.NoRestore != "":
		return errors.New("the plugin restores redacted values, which is not possible: " +
			s.spec.NoRestore)
	}
	return s.renames.Validate()
}

// comparesLists reports whether the stage's verdict on a list depends on other lists.
func (s *Stage) comparesLists() bool { return s.comparesPrincipals > 0 }

// visiblePrincipal returns the principal of m as the stage sees it.
func (s *Stage) visiblePrincipal(m *mcp.Message) string {
	if !s.visibility.Principal {
		return ""
	}
	return m.Principal.ID()
}

// Inspect implements pipeline.Stage.
func (s *Stage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	verdicts, errs, err := s.process.inspectUnlessKept(ctx, m, []*Stage{s})
	switch {
	case err != nil:
		return pipeline.Verdict{}, err
	case errs[0] != nil:
		return pipeline.Verdict{}, errs[0]
	}
	return verdicts[0], nil
}

// maxPrincipals is for how many principals the host assumes that a stage remembers lists.
const maxPrincipals = 4096

// Limits of the text in a verdict.
const (
	maxReason      = 1000 // bytes
	maxFindings    = 1000
	maxFindingText = 500 // bytes of a finding's type or pointer, or of a label
	maxLabels      = 100
	maxHidden      = 100_000 // names that a verdict hides
)

// checkVerdict returns v with its texts truncated, or a denial if v exceeds the stage's grants or
// the limits. The denial holds even if the configuration skips failures. The plugin wanted to act
// on the message; forwarding the message unchanged would ignore that.
func (s *Stage) checkVerdict(v pipeline.Verdict) pipeline.Verdict {
	g := s.spec.Grants
	notGranted := func(did, grant string) pipeline.Verdict {
		return pipeline.Verdict{Reason: fmt.Sprintf(`the plugin %s, but "may" does not have %q`,
			did, grant), Final: true}
	}
	switch {
	case !g.Modify && len(v.Edits) > 0:
		return notGranted("edited the message", "modify")
	case !g.Answer && v.Action == pipeline.Answer:
		return notGranted("answered the request", "answer")
	case !g.Hide && len(v.Hide) > 0:
		return notGranted("hid a name", "hide")
	case !g.Label && len(v.Labels) > 0:
		return notGranted("labelled the session", "label")
	case len(v.Findings) > maxFindings, len(v.Labels) > maxLabels:
		return pipeline.Verdict{Reason: fmt.Sprintf("the verdict has %d findings and %d labels; "+
			"at most %d and %d are allowed", len(v.Findings), len(v.Labels), maxFindings,
			maxLabels), Final: true}
	case len(v.Hide) > maxHidden:
		return pipeline.Verdict{Reason: fmt.Sprintf("the verdict hides %d names; at most %d are "+
			"allowed", len(v.Hide), maxHidden), Final: true}
	}
	v.Reason = display.Clip(v.Reason, maxReason)
	for i, f := range v.Findings {
		v.Findings[i] = pipeline.Finding{Type: display.Clip(f.Type, maxFindingText),
			Pointer: display.Clip(f.Pointer, maxFindingText)}
	}
	for i, l := range v.Labels {
		v.Labels[i] = display.Clip(l, maxFindingText)
	}
	return v
}

// limitServers returns w, narrowed to the messages of the given servers.
func limitServers(w pipeline.Wants, servers []string) pipeline.Wants {
	if slices.Contains(servers, "*") {
		return w
	}
	if len(w.Servers) == 0 {
		w.Servers = servers
		return w
	}
	var both []string
	for _, s := range servers {
		if w.IncludesServer(s) {
			both = append(both, s)
		}
	}
	if both == nil {
		both = []string{"\x00"} // no server has this name; an empty list would mean all servers
	}
	w.Servers = both
	return w
}
