package proto

import (
	"errors"
	"fmt"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	"github.com/go-json-experiment/json/jsontext"
)

// Visibility is what a stage is shown of a message.
type Visibility struct{ Body, Request, Principal bool }

// FromMessage is m as the protocol has it.
func FromMessage(m *mcp.Message, see Visibility) *pb.Message {
	p := &pb.Message{Kind: kinds[m.Kind], Direction: directions[m.Direction], Session: m.Session,
		Exchange: m.Exchange, Method: m.Method, Server: m.Server, Name: m.Name}
	if see.Principal {
		p.Principal = m.Principal
	}
	if see.Body {
		p.Body = m.Body()
	}
	if see.Request && m.Request != nil {
		p.Request = m.Request.Body()
	}
	return p
}

// ToMessage is the reverse of FromMessage. That bodies are JSON is trusted when they are the
// host's; see [HasValidBodies] for those of a plugin.
func ToMessage(p *pb.Message) (*mcp.Message, error) {
	if p == nil {
		return nil, errors.New("there is no message")
	}
	var m *mcp.Message
	switch p.Kind {
	case pb.Kind_KIND_REQUEST:
		m = mcp.NewRequest("0", p.Method, p.Body)
	case pb.Kind_KIND_NOTIFICATION:
		m = mcp.NewNotification(p.Method, p.Body)
	case pb.Kind_KIND_RESPONSE:
		m = mcp.NewResponse("0", p.Body)
	case pb.Kind_KIND_ERROR:
		if m = mcp.NewError("0", 0, "", nil); len(p.Body) > 0 {
			var err error
			if m, err = mcp.ParseEmbeddedError("0", p.Body); err != nil {
				return nil, fmt.Errorf("the error of a message: %w", err)
			}
		}
	default:
		return nil, fmt.Errorf("a message of unknown kind %d", p.Kind)
	}
	switch p.Direction {
	case pb.Direction_DIRECTION_TO_SERVER:
		m.Direction = mcp.ToServer
	case pb.Direction_DIRECTION_TO_CLIENT:
		m.Direction = mcp.ToClient
	default:
		return nil, fmt.Errorf("a message that goes in the unknown direction %d", p.Direction)
	}
	m.Session, m.Principal, m.Exchange, m.Method, m.Server, m.Name = p.Session, p.Principal,
		p.Exchange, p.Method, p.Server, p.Name
	if len(p.Request) > 0 {
		r := mcp.NewRequest("0", p.Method, p.Request)
		r.Direction, r.Session, r.Principal, r.Exchange, r.Server, r.Name = mcp.ToServer+
			mcp.ToClient-m.Direction,
			p.Session, p.Principal, p.Exchange, p.Server, p.Name
		m.Request = r
	}
	return m, nil
}

// HasValidBodies says whether the bodies of a message are JSON, or absent.
func HasValidBodies(p *pb.Message) bool {
	return (len(p.GetBody()) == 0 || jsontext.Value(p.Body).IsValid()) &&
		(len(p.GetRequest()) == 0 || jsontext.Value(p.Request).IsValid())
}

var kinds = map[mcp.Kind]pb.Kind{
	mcp.Request: pb.Kind_KIND_REQUEST, mcp.Notification: pb.Kind_KIND_NOTIFICATION,
	mcp.Response: pb.Kind_KIND_RESPONSE, mcp.Error: pb.Kind_KIND_ERROR,
}

var directions = map[mcp.Direction]pb.Direction{mcp.ToServer: pb.Direction_DIRECTION_TO_SERVER,
	mcp.ToClient: pb.Direction_DIRECTION_TO_CLIENT}

var actions = map[pipeline.Action]pb.Action{
	pipeline.Deny: pb.Action_ACTION_DENY, pipeline.Allow: pb.Action_ACTION_ALLOW,
	pipeline.Modify: pb.Action_ACTION_MODIFY, pipeline.Answer: pb.Action_ACTION_ANSWER,
}

// FromAction is an action as the protocol has it.
func FromAction(a pipeline.Action) pb.Action { return actions[a] }

// ToAction is the reverse of FromAction; an action that is not known is an error.
func ToAction(p pb.Action) (pipeline.Action, error) {
	for a, known := range actions {
		if p == known {
			return a, nil
		}
	}
	return pipeline.Deny, fmt.Errorf("unknown action %d", p)
}

// FromVerdict is a verdict, or the error of a stage, as the protocol has it.
func FromVerdict(v pipeline.Verdict, err error) *pb.Verdict {
	if err != nil {
		return &pb.Verdict{Error: text(err.Error())}
	}
	p := &pb.Verdict{Action: actions[v.Action], Reason: text(v.Reason), Answer: v.Answer,
		Hide: texts(v.Hide), Labels: texts(v.Labels)}
	for _, e := range v.Edits {
		p.Edits = append(p.Edits, &pb.Edit{Pointer: text(e.Pointer), Value: e.Value})
	}
	for _, f := range v.Findings {
		p.Findings = append(p.Findings, &pb.Finding{Type: text(f.Type), Pointer: text(f.Pointer)})
	}
	return p
}

// text is what the protocol can carry: gRPC refuses a whole verdict for one byte that is not UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(all []string) (valid []string) {
	for _, s := range all {
		valid = append(valid, text(s))
	}
	return valid
}

// ToVerdict is the reverse of FromVerdict. An action that is not known becomes none that the
// pipeline knows, which denies: it is no error, since those can be skipped.
func ToVerdict(p *pb.Verdict) (pipeline.Verdict, error) {
	if p == nil {
		return pipeline.Verdict{}, nil // which denies
	}
	if p.Error != "" {
		return pipeline.Verdict{}, errors.New(p.Error)
	}
	action, err := ToAction(p.Action)
	if err != nil {
		action = 255
	}
	v := pipeline.Verdict{Action: action, Reason: p.Reason, Answer: p.Answer, Hide: p.Hide,
		Labels: p.Labels}
	for _, e := range p.Edits {
		v.Edits = append(v.Edits, mcp.Edit{Pointer: e.GetPointer(), Value: e.GetValue()})
	}
	for _, f := range p.Findings {
		v.Findings = append(v.Findings, pipeline.Finding{Type: f.GetType(),
			Pointer: f.GetPointer()})
	}
	return v, nil
}

// FromWants is what a stage wants as the protocol has it.
func FromWants(w pipeline.Wants) *pb.Wants {
	p := &pb.Wants{Methods: w.Methods, Servers: w.Servers}
	for _, k := range w.Kinds {
		p.Kinds = append(p.Kinds, kinds[k])
	}
	for _, d := range w.Directions {
		p.Directions = append(p.Directions, directions[d])
	}
	for method, k := range w.OnlyKind {
		if p.Only == nil {
			p.Only = map[string]pb.Kind{}
		}
		p.Only[method] = kinds[k]
	}
	return p
}

// ToWants is the reverse of FromWants. A kind or direction that is not known is an error: a stage
// that is not asked what it wants to be asked would be no stage.
func ToWants(p *pb.Wants) (pipeline.Wants, error) {
	w := pipeline.Wants{Methods: p.GetMethods(), Servers: p.GetServers()}
	for _, want := range p.GetKinds() {
		for k, known := range kinds {
			if want == known {
				w.Kinds = append(w.Kinds, k)
			}
		}
	}
	for _, want := range p.GetDirections() {
		for d, known := range directions {
			if want == known {
				w.Directions = append(w.Directions, d)
			}
		}
	}
	for method, want := range p.GetOnly() {
		for k, known := range kinds {
			if want == known {
				if w.OnlyKind == nil {
					w.OnlyKind = map[string]mcp.Kind{}
				}
				w.OnlyKind[method] = k
			}
		}
	}
	if len(w.OnlyKind) < len(p.GetOnly()) || len(w.Kinds) < len(p.GetKinds()) ||
		len(w.Directions) < len(p.GetDirections()) {
		return w, errors.New("it wants messages of a kind or direction that is not known")
	}
	return w, nil
}
