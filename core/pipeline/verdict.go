package pipeline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// Action is what a stage decided. The zero Action denies, and so does every value not listed here.
type Action uint8

const (
	Deny   Action = iota // refuse the message
	Allow                // let it pass as it is
	Modify               // let it pass with Verdict.Edits applied
	// (requests only) answer with Verdict.Answer, a JSON object, instead of asking the other side
	Answer
	// (requests to servers only) as Modify or Allow when a human approves, else Deny
	Ask
)

// Verdict is a stage's decision. The zero Verdict denies, and so does one that contradicts itself:
// Allow with edits, Modify without a change.
type Verdict struct {
	Action Action
	Reason string     // for the audit; to the client only when [deny] reasons = true
	Edits  []mcp.Edit // with Modify
	// with Answer: a result; it passes the stages and the record as the response that it is
	Answer []byte
	// clean names (or URIs) this client may not know: taken out of lists, and a denial of any
	// message whose Name is one
	Hide     []string
	Findings []Finding
	Labels   []string
}

// Finding is something that a stage found in a message; it holds no content.
type Finding struct {
	Type    string // what was found: "aws-access-key"
	Pointer string // where in the body
}

// refusal is a denial that was decided, not one by a fault.
type refusal struct {
	reason string
	ask    bool // a human could approve
}

func (r *refusal) Error() string { return "refused: " + r.reason }

// apply is what v makes of m: the message that goes on (or is the answer, when the action is
// "answer") and what was done. The error is a *refusal or a fault.
func (v Verdict) apply(m *mcp.Message,
	approved bool) (next *mcp.Message, action string, err error) {
	switch v.Action {
	case Deny:
		return nil, "", &refusal{reason: v.Reason}
	case Ask:
		if m.Kind != mcp.Request || m.Direction != mcp.ToServer {
			return nil, "", &refusal{reason: v.Reason}
		}
		if !approved {
			return nil, "", &refusal{v.Reason, true}
		}
	case Allow, Modify, Answer:
	default:
		return nil, "", fmt.Errorf("unknown action %d", v.Action)
	}
	switch {
	case v.Action != Modify && v.Action != Ask && len(v.Edits) > 0:
		return nil, "", errors.New("edits without the action modify")
	case v.Action != Answer && v.Answer != nil:
		return nil, "", errors.New("an answer without the action answer")
	case v.Action == Modify && len(v.Edits) == 0 && len(v.Hide) == 0:
		return nil, "", errors.New("the action modify without an edit")
	}

	next, action = m, "pass"
	if len(v.Edits) > 0 {
		if next, err = edit(m, v.Edits); err != nil {
			return nil, "", err
		}
		action = "modify"
	}
	if len(v.Hide) > 0 {
		shown, err := v.hide(next)
		if err != nil {
			return nil, "", err
		}
		if shown != next && action == "pass" {
			action = "hide"
		}
		next = shown
	}
	if v.Action == Answer {
		answer, err := v.answer(m)
		return answer, "answer", err
	}
	return next, action, nil
}

// edit makes the edits and sees to it that the message still goes where it was judged to go.
func edit(m *mcp.Message, edits []mcp.Edit) (*mcp.Message, error) {
	next, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	if m.Kind != mcp.Request && m.Kind != mcp.Notification {
		return next, nil
	}
	method, _ := mcp.LookupMethod(m.Method)
	targets := []string{method.NamePointer}
	switch method.Route {
	case mcp.RouteByReference:
		targets = []string{"/ref/type", "/ref/name", "/ref/uri"}
	case mcp.RouteByExchange:
		targets = []string{"/requestId", "/progressToken"}
	}
	for _, at := range targets {
		if at != "" && !same(m, next, at) {
			return nil, fmt.Errorf("edit: %s must stay as it is: it says where a %s goes", at,
				m.Method)
		}
	}
	return next, nil
}

// same says whether a and b hold the same text at pointer, or the same bytes, or both nothing.
func same(a, b *mcp.Message, pointer string) bool {
	if s, ok := a.Text(pointer); ok {
		t, ok := b.Text(pointer)
		return ok && s == t
	}
	raw, ok := a.Get(pointer)
	edited, still := b.Get(pointer)
	return ok == still && string(raw) == string(edited)
}

// hide takes the hidden names out of lists and filters. It refuses a message that is about one of
// them.
func (v Verdict) hide(m *mcp.Message) (*mcp.Message, error) {
	hidden := make(map[string]bool, len(v.Hide))
	for _, name := range v.Hide {
		hidden[name] = name != "" // what has no name is not the one that is hidden
	}
	method, _ := mcp.LookupMethod(m.Method)
	about := []string{m.Name}
	if m.Kind == mcp.Request || m.Kind == mcp.Notification {
		for _, at := range []string{method.NamePointer, "/ref/name", "/ref/uri"} {
			if name, ok := m.Text(at); ok {
				about = append(about, name)
			}
		}
	}
	for _, name := range about {
		if hidden[name] {
			reason := v.Reason
			if reason == "" {
				reason = "hidden"
			}
			return nil, &refusal{reason: reason}
		}
	}

	var edits []mcp.Edit
	take := func(list, name string) {
		m.Items(list, func(i int, raw []byte) bool {
			// A message is all that decodes protocol bytes, and one that holds only the item does
			// not walk the list a thousand times over.
			if text, ok := mcp.NewNotification("", raw).Text(name); ok && hidden[text] {
				edits = append(edits, mcp.Remove(list+"/"+strconv.Itoa(i)))
			}
			return true
		})
	}
	if m.Kind == mcp.Response && method.ItemsPointer != "" {
		take(method.ItemsPointer, method.ItemNamePointer)
	}
	for _, place := range mcp.NamePlaces(m.Method, m.Kind, m.Direction) {
		// a filter: an array of URIs or task ids
		if list, ok := strings.CutSuffix(place.Pattern, "/*"); ok {
			take(list, "")
		}
	}
	if len(edits) == 0 {
		return m, nil
	}
	shown, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("hide: %w", err)
	}
	return shown, nil
}

// answer is the response to m that v holds.
func (v Verdict) answer(m *mcp.Message) (*mcp.Message, error) {
	if m.Kind != mcp.Request {
		return nil, fmt.Errorf("an answer to a %s, which nobody waits for", m.Kind)
	}
	a, err := mcp.NewResponse(m.ID(), nil).Edit(mcp.Set("", v.Answer))
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if b := a.Body(); len(b) == 0 || b[0] != '{' {
		return nil, errors.New("answer: it is no JSON object")
	}
	if _, ok := a.Get("/resultType"); !ok && wantsType(m) {
		if a, err = a.Edit(mcp.Set("/resultType", []byte(`"complete"`))); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
	}
	return inPlaceOf(m, a), nil
}

// wantsType says whether results for the request say what they are: its revision has resultType.
func wantsType(request *mcp.Message) bool {
	_, ok := request.Get(mcp.PointerProtocolVersion)
	return ok
}

// inPlaceOf gives answer the fields of what the request m, or an answer m, would have got.
func inPlaceOf(m, answer *mcp.Message) *mcp.Message {
	answer.Session, answer.Principal, answer.Exchange = m.Session, m.Principal, m.Exchange
	answer.Method, answer.Server, answer.Name = m.Method, m.Server, m.Name
	answer.Direction, answer.Request = m.Direction, m.Request
	if m.Kind == mcp.Request {
		answer.Direction, answer.Request = mcp.ToServer+mcp.ToClient-m.Direction, m
	}
	return answer
}
