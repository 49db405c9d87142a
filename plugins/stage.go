package plugins

import (
	"context"
	"errors"
	"fmt"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// Stage is a plugin in use. It is a pipeline.Stage.
type Stage struct {
	spec    Spec
	process *supervised
	wants   pipeline.Wants
	renames pipeline.Renames
	see     proto.Visibility
	canary  *pb.Canary
	uses    int // by sets; guarded by the host
}

// accept notes what the plugin says of the stage, once.
func (s *Stage) accept(r *pb.ConfigureResponse) error {
	wants, err := proto.ToWants(r.Wants)
	if err != nil {
		return err
	}
	s.wants = narrowed(wants, s.spec.Servers)
	g := s.spec.Grants
	s.see = proto.Visibility{Body: g.Body && r.Needs.GetBody(), Request: g.Request &&
		r.Needs.GetRequest(),
		Principal: g.Principal}
	s.canary = r.Canary
	s.renames = pipeline.Renames{Tools: r.Renames.GetTools(), Prompts: r.Renames.GetPrompts()}
	if !g.Rename && len(s.renames.Tools)+len(s.renames.Prompts) > 0 {
		return errors.New(`it renames tools or prompts, and is not granted "rename"`)
	}
	return s.renames.Validate()
}

// Inspect implements pipeline.Stage.
func (s *Stage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	verdicts, errs, err := s.process.inspect(ctx, m, []*Stage{s})
	switch {
	case err != nil:
		return pipeline.Verdict{}, err
	case errs[0] != nil:
		return pipeline.Verdict{}, errs[0]
	}
	return verdicts[0], nil
}

// Bounds of what a plugin says about a message.
const (
	maxReason   = 1000 // bytes
	maxFindings = 1000
	maxFinding  = 500 // bytes of each of its words
	maxLabels   = 100
)

// granted is a verdict held against the stage's grants, and its words to their bounds. What was not
// granted denies, also where failures are skipped: the stage wanted something, and what would
// become of the message without it nobody knows.
func (s *Stage) granted(v pipeline.Verdict) pipeline.Verdict {
	g := s.spec.Grants
	switch {
	case !g.Modify && len(v.Edits) > 0:
		return pipeline.Verdict{Reason: `it changed a message, and is not granted "modify"`}
	case !g.Answer && v.Action == pipeline.Answer:
		return pipeline.Verdict{Reason: `it answered a request, and is not granted "answer"`}
	case !g.Hide && len(v.Hide) > 0:
		return pipeline.Verdict{Reason: `it hid what a message names, and is not granted "hide"`}
	case !g.Label && len(v.Labels) > 0:
		return pipeline.Verdict{Reason: `it labelled the session, and is not granted "label"`}
	case len(v.Findings) > maxFindings, len(v.Labels) > maxLabels:
		return pipeline.Verdict{Reason: fmt.Sprintf("it gave %d findings and %d labels, more "+
			"than are kept", len(v.Findings), len(v.Labels))}
	}
	v.Reason = clip(v.Reason, maxReason)
	for i, f := range v.Findings {
		v.Findings[i] = pipeline.Finding{Type: clip(f.Type, maxFinding), Pointer: clip(f.Pointer,
			maxFinding)}
	}
	for i, l := range v.Labels {
		v.Labels[i] = clip(l, maxFinding)
	}
	return v
}

// narrowed are the messages of servers among those that are wanted.
func narrowed(w pipeline.Wants, servers []string) pipeline.Wants {
	for _, s := range servers {
		if s == "*" {
			return w
		}
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
		both = []string{"\x00"} // no server has this name
	}
	w.Servers = both
	return w
}
