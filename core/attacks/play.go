package attacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/conn"
)

// playTimeout limits one case.
const playTimeout = 20 * time.Second

// Stage plays cases, one after the other. Its Dial connects the gateway to the server of the case
// that is played.
type Stage struct {
	servers sync.WaitGroup // one for each connection

	mu      sync.Mutex
	current *play
}

// Dial returns a connection to the scripted server. The gateway may use it for many cases.
func (s *Stage) Dial(context.Context) (conn.PipeCloser, error) {
	near, far := newPipe()
	s.servers.Go(func() { s.serve(far) })
	return near, nil
}

// Wait waits until the gateway has closed all connections that Dial has returned.
func (s *Stage) Wait() { s.servers.Wait() }

// Outcome is the result of playing a case.
type Outcome struct {
	// Arrived reports whether all marks have arrived: of an attack, the harm; of an honest case,
	// the use.
	Arrived bool
	// Refused has the errors with which the gateway has answered the client's requests.
	Refused []string
}

// play is a case that is played.
type play struct {
	c   Case
	era string

	mu        sync.Mutex
	requests  int // of the client that have begun
	arrived   map[string]bool
	exposed   map[string]string // the names and URIs that the client sees, by those of the server
	asked     map[string]bool   // ids of legacy requests of the server
	waiting   jsontext.Value    // id of the call during which the server asks; legacy
	questions int
}

// Play plays a case in an era. The function serve must serve a client until the connection ends,
// through a gateway whose server is Dial. prefix is what the gateway puts before the names of the
// server's tools. An error means that the case could not be played: it has no outcome.
func (s *Stage) Play(ctx context.Context, c Case, era, prefix string,
	serve func(context.Context, conn.Pipe) error) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, playTimeout,
		fmt.Errorf("the case %s did not end within %s", c.Name, playTimeout))
	defer cancel()
	p := &play{c: c, era: era, arrived: map[string]bool{}, exposed: map[string]string{},
		asked: map[string]bool{}}
	s.mu.Lock()
	s.current = p
	s.mu.Unlock()
	near, far := newPipe()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, far) }()
	refused, err := p.useGateway(ctx, near, prefix)
	near.Close()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	<-served
	p.mu.Lock()
	defer p.mu.Unlock()
	o := Outcome{Refused: refused, Arrived: true}
	for _, text := range c.Mark.Texts {
		o.Arrived = o.Arrived && p.arrived[text]
	}
	return o, err
}

// see looks for the marks in a message that has arrived at an end.
func (p *play) see(end string, b []byte) {
	if end != p.c.Mark.Reaches {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range textsIn(b) {
		for _, mark := range p.c.Mark.Texts {
			if strings.Contains(text, mark) {
				p.arrived[mark] = true
			}
		}
	}
}

// useGateway is the client. It returns the errors that it got.
func (p *play) useGateway(ctx context.Context, pipe conn.Pipe, prefix string) ([]string, error) {
	id := 0
	ask := func(method, params string) (message, error) {
		id++
		if p.era == Modern {
			meta := fmt.Sprintf(`{%s:%s,%s:{"name":"attacks","version":"1"},%s:%s}`,
				quote(metaVersion), quote(modernRevision), quote(metaClientInfo),
				quote(metaCapabilities), clientCapabilities)
			params = with(params, "_meta", meta)
		}
		if err := pipe.Write(ctx, request(id, method, params)); err != nil {
			return message{}, err
		}
		return p.await(ctx, pipe, id)
	}
	if p.era == Legacy {
		m, err := ask("initialize", fmt.Sprintf(`{"protocolVersion":%s,"capabilities":%s,`+
			`"clientInfo":{"name":"attacks","version":"1"}}`, quote(legacyRevision),
			clientCapabilities))
		if err != nil {
			return nil, err
		}
		if m.Error != nil {
			return nil, fmt.Errorf("the gateway refused the client: %s", m.Error)
		}
		err = pipe.Write(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		if err != nil {
			return nil, err
		}
	}
	var refused []string
	for _, r := range p.c.Requests {
		p.mu.Lock()
		p.requests++
		p.mu.Unlock()
		params := p.asExposed(r.Method, r.Params, prefix)
		m, err := ask(r.Method, params)
		for round := 0; err == nil && round < 3 &&
			textOf(objectOf(m.Result)["resultType"]) == "input_required"; round++ {
			m, err = ask(r.Method, p.withAnswers(params, m.Result))
		}
		if err != nil {
			return refused, err
		}
		if m.Error != nil {
			refused = append(refused, textOf(objectOf(m.Error)["message"]))
		}
		p.learnNames(r.Method, m.Result)
	}
	return refused, nil
}

const clientCapabilities = `{"sampling":{"context":{},"tools":{}},"roots":{},` +
	`"elicitation":{"form":{},"url":{}}}`

// withAnswers returns the params of a request that is made again with the answers to what the
// server has asked for.
func (p *play) withAnswers(params string, result jsontext.Value) string {
	asked := objectOf(objectOf(result)["inputRequests"])
	answers := map[string]jsontext.Value{}
	for key, question := range asked {
		answers[key] = jsontext.Value(p.answerOf(textOf(objectOf(question)["method"])))
	}
	b, err := json.Marshal(answers)
	if err != nil {
		return params
	}
	params = with(params, "inputResponses", string(b))
	if state := objectOf(result)["requestState"]; state != nil {
		params = with(params, "requestState", string(state))
	}
	return params
}

// answerOf returns the client's answer to a request of the server. The user declines what the
// server of the case does not ask for: it is a question of the gateway whether a call may pass.
func (p *play) answerOf(method string) string {
	switch method {
	case "elicitation/create":
		if p.c.Ask == nil {
			return `{"action":"decline"}`
		}
		return `{"action":"accept","content":{}}`
	case "sampling/createMessage":
		return `{"role":"assistant","content":{"type":"text","text":"fine"},"model":"m",` +
			`"stopReason":"endTurn"}`
	case "roots/list":
		return `{"roots":[]}`
	}
	return `{}`
}

// await reads messages until the answer to a request. It answers the requests of the server.
func (p *play) await(ctx context.Context, pipe conn.Pipe, id int) (message, error) {
	for {
		b, err := pipe.Read(ctx)
		if err != nil {
			return message{}, err
		}
		p.see("client", b)
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			return message{}, fmt.Errorf("the gateway sent what is no message: %w", err)
		}
		switch {
		case m.isRequest():
			if err := pipe.Write(ctx, result(m.ID, p.answerOf(m.Method))); err != nil {
				return message{}, err
			}
		case m.isResponse() && string(m.ID) == fmt.Sprint(id):
			return m, nil
		}
	}
}

// learnNames remembers the names and URIs by which the client knows those of the server.
func (p *play) learnNames(method string, result jsontext.Value) {
	list, key := "", ""
	switch method {
	case "tools/list":
		list, key = "tools", "name"
	case "prompts/list":
		list, key = "prompts", "name"
	case "resources/list":
		list, key = "resources", "uri"
	default:
		return
	}
	var items []object
	if json.Unmarshal(objectOf(result)[list], &items) != nil {
		return
	}
	var own []object
	p.mu.Lock()
	given := p.results(method)
	p.mu.Unlock()
	if json.Unmarshal(objectOf(jsontext.Value(given))[list], &own) != nil {
		return
	}
	for _, o := range own {
		name := textOf(o[key])
		for _, i := range items {
			if seen := textOf(i[key]); strings.HasSuffix(seen, name) {
				p.exposed[name] = seen
			}
		}
	}
}

// asExposed returns the params of a request with the name that the client knows. A client that has
// not got the name in a list, because the gateway hides it, guesses it.
func (p *play) asExposed(method, params, prefix string) string {
	key := "name"
	if method == "resources/read" {
		key, prefix = "uri", ""
	} else if method != "tools/call" && method != "prompts/get" {
		return params
	}
	o := objectOf(jsontext.Value(params))
	name := textOf(o[key])
	if name == "" {
		return params
	}
	exposed := p.exposed[name]
	if exposed == "" {
		exposed = prefix + name
	}
	o[key] = jsontext.Value(quote(exposed))
	b, err := json.Marshal(o, json.Deterministic(true))
	if err != nil {
		return params
	}
	return string(b)
}

// results returns the result of the server for a method now; "" if it has none. The caller must
// hold p.mu.
func (p *play) results(method string) string {
	text := p.c.Server[method]
	for _, l := range p.c.Later {
		if p.requests > l.After && l.Results[method] != "" {
			text = l.Results[method]
		}
	}
	return text
}

// serve is the server. It serves a connection until the gateway closes it.
func (s *Stage) serve(pipe *pipeEnd) {
	ctx := context.Background()
	for {
		b, err := pipe.Read(ctx)
		if err != nil {
			return
		}
		s.mu.Lock()
		p := s.current
		s.mu.Unlock()
		var m message
		if p == nil || json.Unmarshal(b, &m) != nil {
			continue
		}
		p.see("server", b)
		if answer := p.answer(m); answer != nil && pipe.Write(ctx, answer) != nil {
			return
		}
	}
}

// answer returns the server's answer to a message, or nil.
func (p *play) answer(m message) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	params := objectOf(m.Params)
	isModern := textOf(objectOf(params["_meta"])[metaVersion]) == modernRevision
	capabilities := `{"tools":{"listChanged":true},"prompts":{},"resources":{}}`
	switch {
	case m.isResponse() && p.asked[string(m.ID)]:
		delete(p.asked, string(m.ID))
		return result(p.waiting, p.results("tools/call"))
	case !m.isRequest():
		return nil
	case isModern != (p.era == Modern) && m.Method != "ping":
		// The gateway tries the other era first: this server does not know it.
		return fault(m.ID, -32601, "method not found: "+m.Method)
	case m.Method == "initialize":
		return result(m.ID, fmt.Sprintf(`{"protocolVersion":%s,"capabilities":%s,"serverInfo":`+
			`{"name":"attacks","version":"1"}}`, quote(legacyRevision), capabilities))
	case m.Method == "server/discover":
		return result(m.ID, fmt.Sprintf(`{"supportedVersions":[%s],"capabilities":%s,`+
			`"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, quote(modernRevision),
			capabilities))
	case m.Method == "ping":
		return result(m.ID, `{}`)
	}
	text := p.results(m.Method)
	if text == "" {
		return fault(m.ID, -32601, "method not found: "+m.Method)
	}
	if p.c.Ask != nil && m.Method == "tools/call" {
		switch {
		case !isModern:
			p.questions++
			id := jsontext.Value(fmt.Sprintf(`"ask-%d"`, p.questions))
			p.asked[string(id)], p.waiting = true, m.ID
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id,
				quote(p.c.Ask.Method), compact(p.c.Ask.Params))
		case params["inputResponses"] == nil:
			return result(m.ID, fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"q":`+
				`{"method":%s,"params":%s}},"requestState":"s"}`, quote(p.c.Ask.Method),
				compact(p.c.Ask.Params)))
		}
	}
	if isModern {
		text = with(text, "resultType", `"complete"`)
		if m.Method != "tools/call" && m.Method != "prompts/get" {
			text = with(with(text, "ttlMs", "0"), "cacheScope", `"private"`)
		}
	}
	return result(m.ID, text)
}

// ErrNoCases is the error when no case has a class.
var ErrNoCases = errors.New("no case has this class")

// Of returns the cases of some classes, or all cases if there is no class.
func Of(all []Case, classes []string) ([]Case, error) {
	if len(classes) == 0 {
		return all, nil
	}
	found := slices.DeleteFunc(slices.Clone(all), func(c Case) bool {
		return !slices.Contains(classes, c.Class)
	})
	if len(found) == 0 {
		return nil, ErrNoCases
	}
	return found, nil
}
