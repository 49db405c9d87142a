package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// Action is the decision of a stage. The zero Action denies, and so does every value that is not
// listed here.
type Action uint8

const (
	Deny   Action = iota // deny the message
	Allow                // forward it unchanged
	Modify               // forward it with Verdict.Edits applied
	// (requests only) answer with Verdict.Answer, a JSON object, instead of forwarding the request
	Answer
	// (requests to servers only) ask a human; if the human approves, apply Verdict.Edits and
	// forward the request, otherwise deny it
	Ask
)

// Verdict is the decision of a stage with its details. The zero Verdict denies. A verdict that
// contradicts itself denies too, for example Allow with edits or Modify without a change.
type Verdict struct {
	Action Action
	Reason string     // for the audit log; clients get it only if [deny] reasons is true
	Edits  []mcp.Edit // changes of the message, with Modify or Ask
	// with Answer: the result; it is inspected like a response of the server
	Answer []byte
	// items that this client must not see, by the server's names or URIs: lists lose these items,
	// and a message about one of these items is denied
	Hide     []string
	Findings []Finding
	Labels   []string
	// the values that Edits replace by placeholders in a message to the client; the pipeline keeps
	// them if the stage has [StageConfig.Restore]
	Redacted []Redacted
	// Would is the verdict that the stage would have returned if it enforced all of its rules. It
	// is nil if the stage enforces all of them. Would has no effect on the message. If the message
	// passes unchanged, the record has the action of Would, such as would_deny, and the reason of
	// Would. If Gatekit consumes the message, only would_deny and would_ask are recorded.
	Would *Verdict
	// with Deny of a request: the OAuth scopes that it needs, all of them, because the principal's
	// access token lacks some; a client over HTTP gets them in a challenge
	Scopes []string
	// with Deny: the stage could not get what it needs to decide, and an equal message may pass
	// later; see [DeniedError.IsTemporary]
	Temporary bool
	// the record keeps only the size and a keyed hash of the body
	OmitBody bool
	// no allowance of an operator can change the verdict ([Allowances])
	Final bool

	itemIDs map[string]string // the ids of the hidden items of a list, by name
}

// Finding is something that a stage found in a message. It contains no content.
type Finding struct {
	Type    string // what was found: "aws-access-key"
	Pointer string // JSON pointer into the body
}

// denial is the error of a verdict that denies. Every other error of apply is a fault.
type denial struct {
	reason    string
	ask       bool     // the stage asks for a human's approval
	scopes    []string // Verdict.Scopes
	temporary bool     // Verdict.Temporary
}

func (r *denial) Error() string { return "denied: " + r.reason }

// applied is the effect of a verdict on a message.
type applied struct {
	next   *mcp.Message // the changed message; the answer if the action is "answer"
	action string       // for the record
	hidden []hiddenItem // the items that were removed from a list or a filter
}

// hiddenItem is an item that a verdict removed from a list or a filter.
type hiddenItem struct {
	name    string
	pointer string // to the name
	id      string // with which an operator can allow the item, or ""
}

// apply applies v to m. approved means that a human has approved m. The error is a *denial or a
// fault.
func (v Verdict) apply(m *mcp.Message, approved bool) (a applied, err error) {
	switch v.Action {
	case Deny:
		return a, &denial{reason: v.Reason, scopes: v.Scopes, temporary: v.Temporary}
	case Ask:
		if m.Kind != mcp.Request || m.Direction != mcp.ToServer {
			return a, &denial{reason: v.Reason}
		}
		if !approved {
			return a, &denial{reason: v.Reason, ask: true}
		}
	case Allow, Modify, Answer:
	default:
		return a, fmt.Errorf("unknown action %d", v.Action)
	}
	switch {
	case v.Action != Modify && v.Action != Ask && len(v.Edits) > 0:
		return a, errors.New("edits without the action modify")
	case v.Action != Answer && v.Answer != nil:
		return a, errors.New("an answer without the action answer")
	case v.Action == Modify && len(v.Edits) == 0 && len(v.Hide) == 0:
		return a, errors.New("the action modify without an edit")
	}

	next, action := m, "pass"
	if len(v.Edits) > 0 {
		if next, err = applyEdits(m, v.Edits); err != nil {
			return a, err
		}
		action = "modify"
	}
	if len(v.Hide) > 0 {
		shown, removed, err := v.applyHide(next)
		if err != nil {
			return applied{}, err
		}
		if shown != next && action == "pass" {
			action = "hide"
		}
		next, a.hidden = shown, removed
	}
	if v.Action == Answer {
		answer, err := v.makeAnswer(m)
		return applied{next: answer, action: "answer"}, err
	}
	a.next, a.action = next, action
	return a, nil
}

// wouldAction returns the action, such as would_deny, and the reason that a record gets if v is the
// Would of a verdict on m. It returns "" if v lets m pass unchanged.
func (v *Verdict) wouldAction(m *mcp.Message) (action, reason string) {
	if v == nil {
		return "", ""
	}
	would, err := v.apply(m, false)
	if refused := (*denial)(nil); errors.As(err, &refused) && refused.ask {
		return "would_ask", refused.reason
	} else if refused != nil {
		return "would_deny", refused.reason
	}
	switch {
	case err != nil:
		return "would_deny", err.Error()
	case would.action == "pass":
		return "", ""
	}
	return "would_" + would.action, v.Reason
}

// applyEdits applies the edits to m. It returns an error for an edit that would change where m is
// routed.
func applyEdits(m *mcp.Message, edits []mcp.Edit) (*mcp.Message, error) {
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
		if at != "" && !sameValue(m, next, at) {
			return nil, fmt.Errorf("edit: %s must stay as it is: it decides where a %s goes", at,
				m.Method)
		}
	}
	return next, nil
}

// sameValue reports whether the values of a and b at pointer are the same string or the same bytes,
// or both are absent.
func sameValue(a, b *mcp.Message, pointer string) bool {
	if s, ok := a.Text(pointer); ok {
		t, ok := b.Text(pointer)
		return ok && s == t
	}
	raw, ok := a.Get(pointer)
	edited, editedOK := b.Get(pointer)
	return ok == editedOK && string(raw) == string(edited)
}

// hiddenNames returns the names that v hides.
func (v *Verdict) hiddenNames() map[string]bool {
	hidden := make(map[string]bool, len(v.Hide))
	for _, name := range v.Hide {
		// "" hides nothing, since it is the Name of messages without a name
		hidden[name] = name != ""
	}
	return hidden
}

// denies reports whether m is a message about a name that v hides.
func (v *Verdict) denies(m *mcp.Message) bool {
	hidden := v.hiddenNames()
	return slices.ContainsFunc(namesIn(m), func(name string) bool { return hidden[name] })
}

// namesIn returns the names and URIs that the message is about.
func namesIn(m *mcp.Message) []string {
	method, _ := mcp.LookupMethod(m.Method)
	names := []string{m.Name}
	if m.Kind == mcp.Request || m.Kind == mcp.Notification {
		for _, at := range []string{method.NamePointer, "/ref/name", "/ref/uri"} {
			if name, ok := m.Text(at); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// applyHide removes the hidden names from lists and filters, and returns the items that it removed.
// It denies a message about a hidden name.
func (v Verdict) applyHide(m *mcp.Message) (shown *mcp.Message, removed []hiddenItem,
	err error) {
	if v.denies(m) {
		reason := v.Reason
		if reason == "" {
			reason = "hidden"
		}
		return nil, nil, &denial{reason: reason}
	}
	hidden := v.hiddenNames()
	method, _ := mcp.LookupMethod(m.Method)
	isList := false // the list has items with ids
	var edits []mcp.Edit
	removeHidden := func(list, name string) {
		m.ItemTexts(list, name, func(i int, _ []byte, text string, ok bool) bool {
			if ok && hidden[text] {
				at := list + "/" + strconv.Itoa(i)
				edits = append(edits, mcp.Remove(at))
				item := hiddenItem{name: text, pointer: at + name}
				if isList {
					item.id = v.itemIDs[text]
				}
				removed = append(removed, item)
			}
			return true
		})
	}
	if m.Kind == mcp.Response && method.ItemsPointer != "" {
		isList = true
		removeHidden(method.ItemsPointer, method.ItemNamePointer)
		isList = false
	}
	if m.Kind == mcp.Response && m.Method == "roots/list" {
		removeHidden("/roots", "/uri")
	}
	for _, place := range mcp.NamePlaces(m.Method, m.Kind, m.Direction) {
		// a place that ends in /* is a filter: an array of URIs or task ids
		if list, ok := strings.CutSuffix(place.Pattern, "/*"); ok {
			removeHidden(list, "")
		}
	}
	if len(edits) == 0 {
		return m, nil, nil
	}
	if shown, err = m.Edit(edits...); err != nil {
		return nil, nil, fmt.Errorf("hide: %w", err)
	}
	return shown, removed, nil
}

// makeAnswer returns v.Answer as the response to m.
func (v Verdict) makeAnswer(m *mcp.Message) (*mcp.Message, error) {
	if m.Kind != mcp.Request {
		return nil, fmt.Errorf("an answer to a %s, which has no answer", m.Kind)
	}
	a, err := mcp.NewResponse(m.ID(), nil).Edit(mcp.Set("", v.Answer))
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if b := a.Body(); len(b) == 0 || b[0] != '{' {
		return nil, errors.New("answer: no JSON object")
	}
	if _, ok := a.Get("/resultType"); !ok && hasResultType(m) {
		if a, err = a.Edit(mcp.Set("/resultType", []byte(`"complete"`))); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
	}
	return stampAnswer(m, a), nil
}

// hasResultType reports whether the result for the request must have a resultType. Only modern
// results have one.
func hasResultType(request *mcp.Message) bool {
	_, ok := request.Get(mcp.PointerProtocolVersion)
	return ok
}

// stampAnswer sets the fields of answer, such as Session and Server. If m is a request, answer is
// an answer to m. Otherwise answer replaces m and gets the fields of m.
func stampAnswer(m, answer *mcp.Message) *mcp.Message {
	answer.Session, answer.Principal, answer.Exchange = m.Session, m.Principal, m.Exchange
	answer.Method, answer.Server, answer.Name = m.Method, m.Server, m.Name
	answer.Direction, answer.Request = m.Direction, m.Request
	if m.Kind == mcp.Request {
		answer.Direction, answer.Request = mcp.ToServer+mcp.ToClient-m.Direction, m
	}
	return answer
}
