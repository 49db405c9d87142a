package canary

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// StageName is the name of the stage in records.
const StageName = "canary"

// FindingType begins the type of each finding. The name of the canary follows.
const FindingType = "canary:"

// maxFindings limits the findings of one message. A message with more is not searched to its end.
const maxFindings = 100

// Canary is a planted value, or several values that are planted together.
type Canary struct {
	Name   string   // the name in records; not secret
	Values []string // what is searched for
	Record bool     // the message passes, and the record says that it would have been denied
}

// Stage denies or records the messages that have a canary. It implements pipeline.Stage.
type Stage struct {
	canaries []Canary
	scanner  *scanner
	report   func(m *mcp.Message, v pipeline.Verdict)
}

// NewStage returns a stage for the canaries. Each value must have at least 12 bytes, all of them
// printable ASCII. If report is not nil, it is called for each message with a canary, with the
// verdict on the message, perhaps by many goroutines at once.
func NewStage(canaries []Canary, report func(m *mcp.Message, v pipeline.Verdict)) *Stage {
	return &Stage{canaries: canaries, scanner: newScanner(canaries), report: report}
}

// Inspect implements pipeline.Stage. The verdict has one finding for each canary in each text. Its
// reason names the canaries. No verdict has a value.
func (s *Stage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	v, err := s.search(ctx, m)
	if len(v.Findings) > 0 && s.report != nil {
		s.report(m, v)
	}
	return v, err
}

// maxQuick is the size of the largest message that is searched without a time limit. At worst, the
// search takes some tens of milliseconds.
const maxQuick = 64 << 10

// InspectQuickly implements pipeline.QuickStage.
func (s *Stage) InspectQuickly(ctx context.Context, m *mcp.Message) (pipeline.Verdict, bool,
	error) {
	if m.Size() > maxQuick {
		return pipeline.Verdict{}, false, nil
	}
	v, err := s.Inspect(ctx, m)
	return v, true, err
}

// search returns the verdict on a message. The error says why ctx has ended.
func (s *Stage) search(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	r := result{stage: s, found: make([]bool, len(s.canaries))}
	outside := func() string { return "" } // no place in the body
	r.search([]byte(m.Method), outside)
	r.search([]byte(m.ID()), outside)
	var err error
	m.Leaves(func(l mcp.Leaf) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		if len(l.Raw) >= s.scanner.window {
			// a string without escapes is searched as it is, which saves a copy
			text := l.Raw
			if bytes.IndexByte(text, '\\') >= 0 {
				text = []byte(l.Text())
			}
			r.search(text, l.Pointer)
		}
		return len(r.findings) < maxFindings
	})
	if err != nil {
		return pipeline.Verdict{}, fmt.Errorf("search for canaries: %w", err)
	}
	return r.verdict(), nil
}

// result collects what a message has.
type result struct {
	stage    *Stage
	found    []bool // for each canary
	findings []pipeline.Finding
}

// search searches one text. The function pointer returns its place in the message.
func (r *result) search(text []byte, pointer func() string) {
	var here []int
	r.stage.scanner.findDecoded(text, func(canary int) {
		if !slices.Contains(here, canary) {
			here = append(here, canary)
		}
	})
	for _, c := range here {
		r.found[c] = true
		place := pointer()
		if r.isIn(place) {
			place = "" // a member name of the place is or has a value
		}
		r.findings = append(r.findings, pipeline.Finding{
			Type: FindingType + r.stage.canaries[c].Name, Pointer: place})
	}
}

// isIn reports whether a place has a canary itself.
func (r *result) isIn(place string) (is bool) {
	place = strings.NewReplacer("~1", "/", "~0", "~").Replace(place)
	r.stage.scanner.findDecoded([]byte(place), func(int) { is = true })
	return is
}

func (r *result) verdict() pipeline.Verdict {
	if len(r.findings) == 0 {
		return pipeline.Verdict{Action: pipeline.Allow}
	}
	var names []string
	record := true
	for i, c := range r.stage.canaries { // in the order of the configuration
		if r.found[i] {
			names = append(names, c.Name)
			record = record && c.Record
		}
	}
	denial := pipeline.Verdict{Findings: r.findings, Final: true, OmitBody: true,
		Reason: "planted value in the message: canary " + strings.Join(names, ", ")}
	if !record {
		return denial
	}
	return pipeline.Verdict{Action: pipeline.Allow, Findings: r.findings, Final: true,
		OmitBody: true, Would: &denial}
}
