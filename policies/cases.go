package policies

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/go-json-experiment/json/jsontext"
)

// Case is a message for which the policies can be evaluated, with the other information that rules
// read. A case comes from an audit record, or was written by hand.
type Case struct {
	Message     *mcp.Message
	Time        time.Time // zero means now
	Findings    []pipeline.Finding
	BodyMissing bool // the body is not in the log: the input has no params, result or error

	Seq     uint64 // the number of the audit record; 0 for a case that is not a record
	IsEvent bool   // the record is about a start or a reload, not about a message
	Action  string // the recorded action: pass, deny, modify, …; "" when it is not known
	Stage   string // the stage that caused the action: "policy", or a plugin's name

	// the recorded action of the policies; "" when the policies were not evaluated, or when their
	// action is not known
	RecordedAction string

	exchange string
	added    bool // see OnlyAddedTo
	state    caseState
}

// OnlyAddedTo reports whether stages changed the recorded message, and only added to it: items at
// the end of an array, or members of _meta. The plugin trace does so.
func (c *Case) OnlyAddedTo() bool { return c.added }

// WasEvaluated reports whether the policies were evaluated for a recorded case. It returns true for
// a case that was written by hand. Policies are not evaluated for events, for messages that a
// plugin denied or answered, and for Gatekit's own answers.
func (c *Case) WasEvaluated() bool { return !c.IsEvent && (c.Seq == 0 || c.RecordedAction != "") }

// Exchange returns the ID that the case shares with all messages of the same request, or "".
func (c *Case) Exchange() string { return c.exchange }

// LosesState reports whether the body of the case is missing and says what rules may read about
// later messages of the session: the client, its roots, or the definitions of listed items.
func (c *Case) LosesState() bool {
	if !c.BodyMissing || c.IsEvent {
		return false
	}
	meth, _ := mcp.LookupMethod(c.Message.Method)
	return meth.ItemsPointer != "" && c.Message.Kind == mcp.Response ||
		slices.Contains([]string{"initialize", "roots/list"}, c.Message.Method)
}

// lacksRequest reports whether the case is the record of a response, and its request is not known.
func (c *Case) lacksRequest() bool {
	return !c.IsEvent && c.Seq != 0 && c.Message.Request == nil &&
		(c.Message.Kind == mcp.Response || c.Message.Kind == mcp.Error)
}

// caseState is the part of a session's state that a case contains. If a member is nil, the session
// keeps its own value.
type caseState struct {
	client, capabilities, roots, item []byte
	logLevel                          string
	labels                            []string
	calls, minute                     map[string]int
	tools                             []string // input.tools
	knownClient                       *bool
}

// caseMembers are the members that a case written by hand may have. They are the members of a
// JSON-RPC message and of the input.
var caseMembers = []string{
	"jsonrpc", "id", "method", "params", "result", "error",
	"direction", "kind", "server", "name", "tools", "request", "item", "items", "schema", "session",
	"principal", "roots", "findings", "time",
}

// recordMembers are members of an audit record that a case may have, too, because it may have been
// copied from a record.
var recordMembers = []string{
	"action", "seq", "prev", "exchange", "reason", "steps", "before", "after", "values", "code",
	"failed", "micros", "through",
}

// ParseCase parses a case, which is one JSON object. The object is a record of the audit log, or a
// JSON-RPC message that may also have members of the input (input.schema.json). The input that
// Explain returns is a case, too. ParseCase derives a missing kind or direction from the other
// members.
func ParseCase(b []byte) (*Case, error) {
	in := map[string]jsontext.Value{}
	// a body may have lone surrogates; message parses it strictly
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowInvalidUTF8(true))
	whole, err := d.ReadValue()
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	whole = slices.Clone(whole)
	if whole.Kind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	if d.PeekKind() != 0 {
		return nil, errors.New("more than one JSON value; gatekit policy replay takes " +
			"many messages, one on each line")
	}
	body := jsontext.NewDecoder(bytes.NewReader(whole), jsontext.AllowInvalidUTF8(true))
	var unknown error // the error about an unknown member; ignored for a record
	for _, err = body.ReadToken(); err == nil && body.PeekKind() != '}'; {
		var name jsontext.Token
		if name, err = body.ReadToken(); err != nil {
			break
		}
		key := name.String()
		if unknown == nil && !slices.Contains(caseMembers, key) &&
			!slices.Contains(recordMembers, key) {
			unknown = fmt.Errorf("unknown member %q; the members are %s", key,
				strings.Join(caseMembers, ", "))
		}
		var v jsontext.Value
		if v, err = body.ReadValue(); err == nil {
			in[key] = slices.Clone(v)
		}
	}
	if err != nil {
		return nil, err
	}
	isRecord := in["seq"] != nil && in["prev"] != nil
	if unknown != nil && !isRecord {
		return nil, unknown
	}
	r := caseReader{members: in, lenient: isRecord}
	c := &Case{Action: r.text("action"), exchange: r.text("exchange")}
	c.RecordedAction = c.Action
	if isRecord {
		r.record(c)
	}
	r.fill(c)
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// caseReader decodes the members of a case. It keeps the first error in err.
type caseReader struct {
	members map[string]jsontext.Value
	lenient bool // objects may have unknown members: a newer Gatekit may have written the record
	err     error
}

func (r *caseReader) fail(format string, a ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, a...)
	}
}

// decode decodes a member if it is present.
func (r *caseReader) decode(name string, v any) {
	raw, ok := r.members[name]
	if !ok {
		return
	}
	var err error
	if r.lenient {
		err = json.Unmarshal(raw, v)
	} else {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		err = d.Decode(v)
	}
	if err != nil {
		r.fail("%s: %s", name, strings.TrimPrefix(err.Error(), "json: "))
	}
}

func (r *caseReader) text(name string) (s string) {
	// a log has many plain texts, and the general way takes ten times as long
	if raw := r.members[name]; len(raw) >= 2 && raw[0] == '"' && utf8.Valid(raw) &&
		bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	r.decode(name, &s)
	return s
}

// record turns the members of an audit record into the members of a message.
func (r *caseReader) record(c *Case) {
	delete(r.members, "error") // in a record, this is the error of a stage, not of the message
	r.decode("seq", &c.Seq)
	c.IsEvent, c.BodyMissing, c.RecordedAction = r.members["kind"] == nil, true, ""
	var steps []struct {
		Stage, Action, Reason string
		Micros                int
		Changed               []string
		Findings              []struct{ Type, Pointer string }
	}
	r.decode("steps", &steps)
	// The following actions show that the policies were evaluated. For any other action, the
	// policies were evaluated only if the record has a step of the policies.
	if slices.Contains([]string{"pass", "modify", "hide", "restore", "skip", "ask"},
		c.Action) || strings.HasPrefix(c.Action, "would_") {
		c.RecordedAction = "pass" // a step of the policies below replaces it
	}
	var changed []string
	for _, s := range steps {
		changed = append(changed, s.Changed...)
		if s.Stage == "policy" {
			// In shadow mode, the recorded action is "would_" followed by the action that the
			// policies would take if they were enforced.
			c.RecordedAction = strings.TrimPrefix(s.Action, "would_")
			if s.Action == "allowed" {
				c.RecordedAction = "" // the record does not say what the policies decided
			}
		} else {
			for _, f := range s.Findings {
				c.Findings = append(c.Findings, pipeline.Finding{Type: f.Type, Pointer: f.Pointer})
			}
		}
		if s.Action == "deny" || c.Stage == "" && s.Action == c.Action {
			c.Stage = s.Stage
		}
	}
	c.added = len(changed) > 0 && !slices.ContainsFunc(changed, func(pointer string) bool {
		return !strings.HasPrefix(pointer, "/_meta/") && !strings.HasSuffix(pointer, "/-")
	})
	var after struct {
		Size   int
		Sha256 string
		Body   json.RawMessage
	}
	r.decode("after", &after)
	if r.members["before"] == nil { // the message had no body
		c.BodyMissing = false
	}
	if after.Body != nil {
		c.BodyMissing = false
		r.members[map[string]string{"response": "result",
			"error": "error"}[r.text("kind")]] = jsontext.Value(after.Body)
		if b, ok := r.members[""]; ok {
			r.members["params"] = b
			delete(r.members, "")
		}
	}
}

// fill sets the message of the case.
func (r *caseReader) fill(c *Case) {
	if c.IsEvent {
		return
	}
	method := r.text("method")
	meth, _ := mcp.LookupMethod(method)
	kind := r.text("kind")
	switch {
	case kind != "":
	case r.members["result"] != nil:
		kind = "response"
	case r.members["error"] != nil:
		kind = "error"
	case r.members["id"] != nil || meth.Kind == mcp.Request:
		kind = "request"
	default:
		kind = "notification"
	}
	body := map[string]string{"request": "params", "notification": "params", "response": "result",
		"error": "error"}[kind]
	switch {
	case body == "":
		r.fail(`kind is %q, want "request", "response", "error" or "notification"`, kind)
	case method == "" && (kind == "request" || kind == "notification"):
		r.fail(`the message has no "method"`)
	}
	for _, other := range []string{"params", "result", "error"} {
		if other != body && r.members[other] != nil {
			r.fail("a %s has no member %q", kind, other)
		}
	}
	if r.err != nil {
		return
	}
	m, err := message(kind, r.members["id"], method, body, r.members[body])
	if err != nil {
		r.fail("%w", err)
		return
	}
	request := m
	if (kind == "response" || kind == "error") && r.members["request"] != nil {
		if request, err = message("request", nil, method,
			"params", r.members["request"]); err != nil {
			r.fail("request: %w", err)
			return
		}
	}
	direction := meth.Direction // the direction of the method's requests
	if direction == 0 {
		direction = mcp.ToServer
	}
	if kind == "response" || kind == "error" {
		direction = mcp.ToServer + mcp.ToClient - direction
	}
	switch d := r.text("direction"); d {
	case "":
	case "to_server":
		direction = mcp.ToServer
	case "to_client":
		direction = mcp.ToClient
	default:
		r.fail(`direction is %q, want "to_server" or "to_client"`, d)
	}
	m.Direction, m.Method, m.Server, m.Name = direction, method, r.text("server"), r.text("name")
	if m.Name == "" && meth.NamePointer != "" {
		m.Name, _ = request.Text(meth.NamePointer)
	}
	if request != m {
		request.Direction, request.Server, request.Name = mcp.ToServer+mcp.ToClient-direction,
			m.Server, m.Name
		m.Request = request
	}
	r.session(c, m)
	var findings []struct{ Type, Pointer string }
	if r.decode("findings", &findings); findings != nil {
		c.Findings = nil
		for _, f := range findings {
			c.Findings = append(c.Findings, pipeline.Finding{Type: f.Type, Pointer: f.Pointer})
		}
	}
	if r.members["time"] != nil {
		r.decode("time", &c.Time)
	}
	c.Message = m
}

// session reads the principal and the state of the session from the members.
func (r *caseReader) session(c *Case, m *mcp.Message) {
	if r.members["session"].Kind() == '"' {
		m.Session = r.text("session")
	} else {
		var s struct {
			ID                   string
			Client, Capabilities json.RawMessage
			KnownClient          *bool  `json:"known_client"`
			LogLevel             string `json:"log_level"`
			Labels               []string
			Calls                map[string]int
			Minute               map[string]int
		}
		r.decode("session", &s)
		m.Session, c.state.client, c.state.capabilities = s.ID, s.Client, s.Capabilities
		c.state.labels, c.state.calls, c.state.minute = s.Labels, s.Calls, s.Minute
		c.state.knownClient, c.state.logLevel = s.KnownClient, s.LogLevel
	}
	if r.members["principal"].Kind() == '"' {
		m.Principal = r.namedPrincipal()
	} else {
		var p struct {
			ID, Issuer, Subject, Client string
			Method                      identity.Method
			Scopes, Groups              []string
			Claims                      map[string]json.RawMessage
		}
		r.decode("principal", &p)
		a := identity.Attributes{Method: p.Method, Issuer: p.Issuer, Subject: p.Subject,
			Client: p.Client, Scopes: p.Scopes, Groups: p.Groups}
		if len(p.Claims) > 0 {
			a.Claims, _ = json.Marshal(p.Claims) // cannot fail: the values were read as JSON
		}
		if a.Issuer != "" && a.Method == identity.Local {
			a.Method = identity.JWT
		}
		principal, err := identity.New(a)
		switch {
		case a.Method == identity.Local && a.Client == "" && len(a.Claims) == 0 &&
			len(a.Scopes)+len(a.Groups) == 0: // only a name
			principal = identity.FromID(cmp.Or(p.ID, p.Subject))
		case err != nil:
			r.fail("principal: %w", err)
		case p.ID != "" && p.ID != principal.ID():
			r.fail("the id of the principal does not fit its method, issuer and subject")
		}
		m.Principal = principal
	}
	c.state.roots, c.state.item = r.members["roots"], r.members["item"]
	r.decode("tools", &c.state.tools)
	if v, ok := r.members["roots"]; ok && v.Kind() != '[' {
		r.fail("roots is not a JSON array")
	}
	if v, ok := r.members["item"]; ok && v.Kind() != '{' {
		r.fail("item is not a JSON object")
	}
}

// namedPrincipal returns the principal whose ID is the member principal, with the attributes that
// an audit record has. A case may also have any other name as its principal.
func (r *caseReader) namedPrincipal() *identity.Principal {
	id := r.text("principal")
	a, err := identity.ParseID(id)
	if err != nil {
		return identity.FromID(id)
	}
	if r.lenient { // an audit record
		a.Client, a.Scopes = r.text("client"), strings.Fields(r.text("scope"))
		if method := identity.Method(r.text("authentication")); a.Issuer != "" &&
			method == identity.Introspection {
			a.Method = method
		}
	}
	p, err := identity.New(a)
	if err != nil {
		r.fail("principal: %w", err)
	}
	return p
}

// message builds a message from the members of a case, and parses it as strictly as a message from
// a peer.
func message(kind string, id jsontext.Value, method, body string,
	raw jsontext.Value) (*mcp.Message, error) {
	b := []byte(`{"jsonrpc":"2.0"`)
	if kind != "notification" {
		if id == nil {
			id = jsontext.Value("1")
		}
		b = append(append(b, `,"id":`...), id...)
	}
	if kind == "request" || kind == "notification" {
		b = append(append(b, `,"method":`...), mcp.Quote(method)...)
	}
	if raw == nil && kind == "response" {
		raw = jsontext.Value("{}")
	}
	if raw == nil && kind == "error" {
		raw = jsontext.Value(`{"code":0,"message":""}`)
	}
	if raw != nil {
		b = append(append(b, `,"`+body+`":`...), raw...)
	}
	return mcp.Parse(append(b, '}'))
}

// setState replaces the parts of the session's state that the case contains.
func (s *session) setState(m *mcp.Message, state caseState, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.client != nil {
		s.client = state.client
	}
	if state.capabilities != nil {
		s.capabilities = state.capabilities
	}
	if state.logLevel != "" {
		s.logLevel = state.logLevel
	}
	if state.roots != nil {
		s.roots = state.roots
	}
	if state.labels != nil {
		s.labels = slices.Clone(state.labels)
	}
	if state.calls != nil {
		s.calls, s.callNameBytes = maps.Clone(state.calls), 0
		for name := range state.calls {
			s.callNameBytes += callNameSize(name)
		}
		s.unlistedCalls, s.unlistedBytes = map[string]bool{}, s.callNameBytes
		for name, n := range state.calls {
			s.unlistedCalls[name] = n > 0
		}
	}
	if state.minute != nil {
		s.lastMinute.reset(state.minute, at)
	}
	if key, ok := definitionKey(m); ok && state.item != nil {
		old := s.definitions[key]
		s.dropParsed(old)
		s.definitions[key] = definition{raw: state.item}
		s.definitionBytes += len(state.item) - len(old.raw)
		s.store.definitionBytes.Add(int64(len(state.item) - len(old.raw)))
	}
}

// outcomeRecorder keeps the outcome of one message.
type outcomeRecorder struct{ pipeline.Outcome }

func (w *outcomeRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	w.Outcome = o
	return 1, nil
}

// caseStage evaluates the policies for one case. It has none of the other methods of a Stage.
type caseStage struct {
	stage *Stage
	c     *Case
}

func (a caseStage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	return a.stage.inspect(ctx, m, a.stage.contextOf(a.c))
}

func (s *Stage) contextOf(c *Case) messageContext {
	mc := messageContext{findings: c.Findings, now: c.Time, bodyMissing: c.BodyMissing,
		tools: c.state.tools, knownClient: c.state.knownClient}
	if mc.now.IsZero() {
		mc.now = s.now()
	}
	return mc
}

// Evaluate returns the outcome of a case, as it would be recorded. The session of the case is
// updated when the message passes, as for live messages.
func (s *Stage) Evaluate(ctx context.Context, c *Case) pipeline.Outcome {
	s.sessions.session(c.Message).setState(c.Message, c.state, s.contextOf(c).now)
	w := &outcomeRecorder{}
	// an error is part of the outcome
	pipeline.New(w, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
		Stage: caseStage{s, c}}).Pass(ctx, c.Message)
	return w.Outcome
}

// StateMembers returns the members of the input that rules read, and that come from earlier
// messages of the session. It considers only the rules that can hold for the message. If the log
// does not have these messages, the verdict on the case may differ from the verdict on the live
// message.
func (s *Stage) StateMembers(c *Case) (names []string, err error) {
	class := s.selector.classOfMessage(c.Message, c.BodyMissing)
	if s.selector.comparedValues[schemaMember]["mismatch"] {
		class[schemaMember] = "mismatch" // it may be one
	}
	q, err := s.selector.query(s.all, class)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"tools", "item", "schema", "roots"} {
		if _, ok := q.reads.wants(name); ok {
			names = append(names, name)
		}
	}
	if below, ok := q.reads.wants("session"); ok {
		if _, onlyID := below["id"]; !onlyID || len(below) > 1 {
			names = append(names, "session")
		}
	}
	hides, err := s.definitionsNeeded(c)
	if hides && err == nil {
		names = append(names, "items")
	}
	return names, err
}

// UnrecordedPrincipal returns the members of input.principal that rules read and that no record
// has. It considers only the rules that can hold for the message. It returns none for the local
// user, and for a case that is not a record.
func (s *Stage) UnrecordedPrincipal(c *Case) (names []string, err error) {
	if c.Seq == 0 || c.Message.Principal.Issuer() == "" {
		return nil, nil
	}
	q, err := s.selector.query(s.all, s.selector.classOfMessage(c.Message, c.BodyMissing))
	if err != nil {
		return nil, err
	}
	below, ok := q.reads.wants("principal")
	if !ok {
		return nil, nil
	}
	for _, name := range []string{"groups", "claims"} {
		if _, ok := below.wants(name); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// MissingMembers returns the members of the input that rules need, but that are missing because the
// log does not have the body of the case, or does not have the request of a response. It considers
// only the rules that can hold for the message. If members are missing, the verdict on the case
// says nothing about the message.
func (s *Stage) MissingMembers(c *Case) (names []string, err error) {
	withoutRequest := c.lacksRequest()
	if !c.BodyMissing && !withoutRequest {
		return nil, nil
	}
	class := s.selector.classOfMessage(c.Message, c.BodyMissing)
	if s.selector.comparedValues[schemaMember]["mismatch"] {
		class[schemaMember] = "mismatch" // it may be one
	}
	q, err := s.selector.query(s.all, class)
	if err != nil {
		return nil, err
	}
	missing := []string{"request"}
	if c.BodyMissing {
		missing = []string{"params", "result", "error", "request", "item", "items", "schema",
			"roots"}
	}
	for _, name := range missing {
		if _, ok := q.reads.wants(name); ok {
			names = append(names, name)
		}
	}
	if !c.BodyMissing {
		return names, nil
	}
	hides, err := s.definitionsNeeded(c)
	if hides && !slices.Contains(names, "items") {
		names = append(names, "items")
	}
	return names, err
}

// definitionsNeeded reports whether hide rules need the definition of an item that the message of a
// case uses. The definition is in the body of an earlier list.
func (s *Stage) definitionsNeeded(c *Case) (needed bool, err error) {
	for _, u := range s.sessions.session(c.Message).itemUses(c.Message) {
		q, err := s.selector.query(s.hideQuery(c.Message), s.selector.classOf(mcp.ToClient,
			mcp.Response, u.list, c.Message.Server, ""))
		if err != nil {
			return false, err
		}
		meth, _ := mcp.LookupMethod(u.list)
		if needsDefinition(q.hideReads, meth.ItemNamePointer[1:]) {
			return true, nil
		}
	}
	return false, nil
}
