package proto

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	"github.com/go-json-experiment/json/jsontext"
)

// Visibility is the parts of a message that a stage may see.
type Visibility struct{ Body, Request, Principal bool }

// FromMessage returns the protocol's message for m, with only the visible parts.
func FromMessage(m *mcp.Message, visible Visibility) *pb.Message {
	p := &pb.Message{Kind: kinds[m.Kind], Direction: directions[m.Direction], Session: m.Session,
		Exchange: m.Exchange, Method: m.Method, Server: m.Server, Name: m.Name}
	if visible.Principal {
		p.Principal = m.Principal.ID()
	}
	if visible.Body {
		p.Body = m.Body()
	}
	if visible.Request && m.Request != nil {
		p.Request = m.Request.Body()
	}
	return p
}

// ToMessage is the reverse of FromMessage. It does not check that the bodies are JSON, because the
// host checks every message that it sends. For a message of a plugin, call [HasValidBodies] first.
func ToMessage(p *pb.Message) (*mcp.Message, error) {
	if p == nil {
		return nil, errors.New("the message is missing")
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
				return nil, fmt.Errorf("error of the message: %w", err)
			}
		}
	default:
		return nil, fmt.Errorf("unknown message kind %d", p.Kind)
	}
	switch p.Direction {
	case pb.Direction_DIRECTION_TO_SERVER:
		m.Direction = mcp.ToServer
	case pb.Direction_DIRECTION_TO_CLIENT:
		m.Direction = mcp.ToClient
	default:
		return nil, fmt.Errorf("unknown message direction %d", p.Direction)
	}
	m.Session, m.Principal, m.Exchange = p.Session, identity.FromID(p.Principal), p.Exchange
	m.Method, m.Server, m.Name = p.Method, p.Server, p.Name
	if len(p.Request) > 0 {
		r := mcp.NewRequest("0", p.Method, p.Request)
		r.Direction, r.Session, r.Principal, r.Exchange, r.Server, r.Name = mcp.ToServer+
			mcp.ToClient-m.Direction,
			p.Session, m.Principal, p.Exchange, p.Server, p.Name
		m.Request = r
	}
	return m, nil
}

// HasValidBodies reports whether the body and the request of p are JSON or absent.
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

// FromAction returns the protocol's action for a.
func FromAction(a pipeline.Action) pb.Action { return actions[a] }

// ToAction is the reverse of FromAction. An unknown action is an error.
func ToAction(p pb.Action) (pipeline.Action, error) {
	a, ok := keyOf(actions, p)
	if !ok {
		return pipeline.Deny, fmt.Errorf("unknown action %d", p)
	}
	return a, nil
}

// keyOf returns the key of a value in m.
func keyOf[K, V comparable](m map[K]V, value V) (key K, ok bool) {
	for k, v := range m {
		if v == value {
			return k, true
		}
	}
	return key, false
}

// FromVerdict returns the protocol's verdict for v, or for the error of a stage.
func FromVerdict(v pipeline.Verdict, err error) *pb.Verdict {
	if err != nil {
		return &pb.Verdict{Error: validUTF8(err.Error())}
	}
	p := &pb.Verdict{Action: actions[v.Action], Reason: validUTF8(v.Reason), Answer: v.Answer,
		Hide: allValidUTF8(v.Hide), Labels: allValidUTF8(v.Labels)}
	for _, e := range v.Edits {
		p.Edits = append(p.Edits, &pb.Edit{Pointer: validUTF8(e.Pointer), Value: e.Value})
	}
	for _, f := range v.Findings {
		p.Findings = append(p.Findings, &pb.Finding{Type: validUTF8(f.Type),
			Pointer: validUTF8(f.Pointer)})
	}
	for _, r := range v.Redacted {
		p.Redacted = append(p.Redacted, &pb.Redacted{Placeholder: validUTF8(r.Placeholder),
			Value: validUTF8(r.Value)})
	}
	return p
}

// validUTF8 returns s with U+FFFD in place of invalid UTF-8. Otherwise protobuf would refuse to
// encode the whole verdict.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func allValidUTF8(all []string) (valid []string) {
	for _, s := range all {
		valid = append(valid, validUTF8(s))
	}
	return valid
}

// unknownAction is an action that the pipeline does not know. The pipeline treats it as a denial.
const unknownAction pipeline.Action = 255

// ToVerdict is the reverse of FromVerdict. A verdict with an unknown action denies. An unknown
// action is not an error, because the configuration may skip errors.
func ToVerdict(p *pb.Verdict) (pipeline.Verdict, error) {
	if p == nil {
		return pipeline.Verdict{}, nil // the zero verdict denies
	}
	if p.Error != "" {
		return pipeline.Verdict{}, errors.New(p.Error)
	}
	action, err := ToAction(p.Action)
	if err != nil {
		action = unknownAction
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
	for _, r := range p.Redacted {
		v.Redacted = append(v.Redacted, pipeline.Redacted{Placeholder: r.GetPlaceholder(),
			Value: r.GetValue()})
	}
	return v, nil
}

// FromWants returns the protocol's wants for w.
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

// ToWants is the reverse of FromWants. An unknown kind or direction is an error: otherwise the
// stage would silently miss messages that it wants.
func ToWants(p *pb.Wants) (pipeline.Wants, error) {
	w := pipeline.Wants{Methods: p.GetMethods(), Servers: p.GetServers()}
	for _, kind := range p.GetKinds() {
		k, ok := keyOf(kinds, kind)
		if !ok {
			return w, fmt.Errorf("wants: unknown message kind %d", kind)
		}
		w.Kinds = append(w.Kinds, k)
	}
	for _, direction := range p.GetDirections() {
		d, ok := keyOf(directions, direction)
		if !ok {
			return w, fmt.Errorf("wants: unknown message direction %d", direction)
		}
		w.Directions = append(w.Directions, d)
	}
	for method, kind := range p.GetOnly() {
		k, ok := keyOf(kinds, kind)
		if !ok {
			return w, fmt.Errorf("wants: unknown message kind %d of %s", kind, method)
		}
		if w.OnlyKind == nil {
			w.OnlyKind = map[string]mcp.Kind{}
		}
		w.OnlyKind[method] = k
	}
	return w, nil
}

// FromRestore returns the protocol's form of the settings, or nil.
func FromRestore(r *pipeline.Restore) *pb.Restore {
	if r == nil {
		return nil
	}
	return &pb.Restore{Seconds: int64(r.For / time.Second), Tools: allValidUTF8(r.Tools)}
}

// maxRestoreTime is how long a value may be restored at most.
const maxRestoreTime = 24 * time.Hour

// ToRestore is the reverse of FromRestore. It returns an error for a time that is not positive or
// too long.
func ToRestore(p *pb.Restore) (*pipeline.Restore, error) {
	if p == nil {
		return nil, nil
	}
	if p.Seconds <= 0 || p.Seconds > int64(maxRestoreTime/time.Second) {
		return nil, fmt.Errorf("redacted values cannot be restored for %d seconds: use 1 to %d",
			p.Seconds, int64(maxRestoreTime/time.Second))
	}
	return &pipeline.Restore{For: time.Duration(p.Seconds) * time.Second, Tools: p.Tools}, nil
}
