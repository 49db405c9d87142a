package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Prefix begins the paths of the console.
const Prefix = "/console/"

// Bounds of a console.
const (
	maxViewers  = 32               // streams of live rows at once
	maxForm     = 64 << 10         // bytes of a request's body
	maxQuery    = 4 << 10          // bytes of a query in a URL
	pageTimeout = 20 * time.Second // for the data of a page
	keepAlive   = 15 * time.Second // between two lines of a stream
	sendTimeout = 10 * time.Second // for a line of a stream: a viewer that does not read is dropped
)

// Scope limits the requests that a token allows.
type Scope string

// Scopes of tokens.
const (
	ScopeRead    Scope = "read"    // see all pages
	ScopeApprove Scope = "approve" // also run the actions of pages
)

// Options configure a Console.
type Options struct {
	Scope Scope        // the largest scope of a token
	Pages []Page       // in the order of the navigation; the first is shown first
	Log   *slog.Logger // nil: nothing is logged
}

// Page is one page of the console.
type Page struct {
	Name  string // in the URL fragment (#servers), and of the template templates/NAME.html
	Title string
	// Hidden leaves the page out of the navigation: other pages link to it.
	Hidden bool
	// Data returns the data of the template. The error is shown instead of the page.
	Data func(ctx context.Context, r Request) (any, error)
	// Refresh is the time after which the browser fetches the page again, while somebody looks at
	// it. 0: it does not.
	Refresh time.Duration
	// Live sends rows, until ctx ends, to a browser that shows the page. It is called once for each
	// such browser. nil: the page has no rows that change by themselves.
	Live func(ctx context.Context, r Request, send func(Update) error) error
	// Badge returns the number beside the title of the page in the navigation, such as the number
	// of waiting requests; nil for none. All viewers ask every 15 seconds.
	Badge func(ctx context.Context) int
	// Actions are the actions of the page by name. They get the fields of the form and return a
	// sentence to show.
	Actions map[string]func(ctx context.Context, r Request, form url.Values) (string, error)
}

// Request is a request for a page.
type Request struct {
	Query      url.Values // of the URL fragment
	CanApprove bool       // the token has the scope "approve"
	// Session names the session of the viewer in records, such as "console session 5kq2". It is not
	// secret.
	Session string
	// After is the position after which Live begins: Update.After of the last update that the
	// browser got, or the attribute data-after of the element with id="live".
	After string
}

// Update is a change of a page's live rows.
type Update struct {
	Rows    any    // data of the template "rows" of the page; nil for none
	Omitted int    // records that were left out because there were too many
	After   string // the position of the update
}

//go:embed static templates
var files embed.FS

// Console serves the console. It is safe for concurrent use.
type Console struct {
	o       Options
	log     *slog.Logger
	pages   map[string]*page
	shell   []byte
	access  access
	guard   *http.CrossOriginProtection
	viewers chan struct{}
	closed  chan struct{}
	close   func()
}

// page is a Page with its templates.
type page struct {
	Page
	template *template.Template
}

// New returns a console. It returns an error if a template of a page is missing or wrong.
func New(o Options) (*Console, error) {
	c := &Console{o: o, log: o.Log, pages: map[string]*page{},
		guard:   http.NewCrossOriginProtection(),
		viewers: make(chan struct{}, maxViewers), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	for _, p := range o.Pages {
		file := "templates/" + p.Name + ".html"
		t, err := template.New(p.Name+".html").Funcs(functions).ParseFS(files, file)
		if err != nil {
			return nil, fmt.Errorf("page %q of the console: %w", p.Name, err)
		}
		c.pages[p.Name] = &page{p, t}
	}
	shell, err := template.ParseFS(files, "templates/shell.html")
	if err != nil {
		return nil, fmt.Errorf("page of the console: %w", err)
	}
	var b bytes.Buffer
	if err := shell.Execute(&b, o.Pages); err != nil {
		return nil, fmt.Errorf("page of the console: %w", err)
	}
	c.shell = b.Bytes()
	return c, nil
}

// Close ends all streams. It does not end the requests for pages, which are short.
func (c *Console) Close() { c.close() }

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	path, _ := strings.CutPrefix(r.URL.Path, Prefix)
	api, isAPI := strings.CutPrefix(path, "api/")
	isGet := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch reason := c.refusal(r, isAPI); {
	case reason != "":
		c.log.Warn("console request refused", "reason", reason, "path", path)
		http.Error(w, reason, http.StatusForbidden)
	case isAPI:
		c.serveAPI(w, r, api)
	case !isGet:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
	case path == "":
		serveFile(w, r, "index.html", c.shell)
	case path == "console.js" || path == "console.css":
		content, err := files.ReadFile("static/" + path)
		if err != nil {
			http.Error(w, "this file is missing", http.StatusInternalServerError)
			return
		}
		serveFile(w, r, path, content)
	default:
		http.Error(w, "no such page: try /console/", http.StatusNotFound)
	}
}

func serveFile(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	w.Header().Set("Content-Type", mime.TypeByExtension(name[strings.LastIndexByte(name, '.'):]))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// serveAPI serves a request of the module.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	if path == "session" {
		if allowMethod(w, r, http.MethodPost) {
			c.serveLogin(w, r)
		}
		return
	}
	s := c.access.session(r)
	if s == nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "log in: run gatekit console", http.StatusUnauthorized)
		return
	}
	kind, name, _ := strings.Cut(path, "/")
	name, action, _ := strings.Cut(name, "/")
	p := c.pages[name]
	switch {
	case kind == "badges" && name == "":
		if allowMethod(w, r, http.MethodGet) {
			c.serveBadges(w, r)
		}
	case kind == "end" && name == "":
		if allowMethod(w, r, http.MethodPost) {
			c.access.end(s)
			writeJSON(w, struct{}{})
		}
	case p == nil || len(r.URL.RawQuery) > maxQuery:
		http.Error(w, "no such page", http.StatusNotFound)
	case kind == "page" && action == "":
		if allowMethod(w, r, http.MethodGet) {
			c.servePage(w, r, p, c.request(r, s))
		}
	case kind == "live" && action == "" && p.Live != nil:
		if allowMethod(w, r, http.MethodGet) {
			c.serveLive(w, r, p, c.request(r, s))
		}
	case kind == "do" && p.Actions[action] != nil:
		if allowMethod(w, r, http.MethodPost) {
			c.serveAction(w, r, p, action, c.request(r, s))
		}
	default:
		http.Error(w, "no such page", http.StatusNotFound)
	}
}

// allowMethod reports whether a request has the method. Otherwise, it refuses the request.
func allowMethod(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method != method {
		w.Header().Set("Allow", method)
		http.Error(w, "only "+method+" is allowed", http.StatusMethodNotAllowed)
	}
	return r.Method == method
}

func (c *Console) request(r *http.Request, s *session) Request {
	query := r.URL.Query()
	after := query.Get("after")
	query.Del("after")
	return Request{Query: query, CanApprove: s.scope == ScopeApprove, Session: s.name,
		After: after}
}

// serveLogin exchanges a code for a token.
func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request) {
	form, ok := readForm(w, r)
	if !ok {
		return
	}
	token, s := c.access.exchange(form.Get("code"))
	if s == nil {
		c.log.Warn("console login refused: the code is wrong, expired or was used before")
		http.Error(w, "the code is wrong, expired or was used before: run gatekit console again",
			http.StatusForbidden)
		return
	}
	c.log.Info("console session opened", "session", s.name, "scope", s.scope)
	writeJSON(w, struct {
		Token string `json:"token"`
		Scope Scope  `json:"scope"`
	}{token, s.scope})
}

// readForm reads the form in the body of a request.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	form, parseErr := url.ParseQuery(string(body))
	if err != nil || parseErr != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return nil, false
	}
	return form, true
}

// servePage renders a page.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request, p *page, request Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	reply := struct {
		Title   string `json:"title"`
		Nodes   []any  `json:"nodes"`
		Live    bool   `json:"live"`
		Refresh int64  `json:"refresh"` // milliseconds
		Error   string `json:"error,omitzero"`
	}{Title: p.Title, Live: p.Live != nil, Refresh: p.Refresh.Milliseconds()}
	data, err := p.Data(ctx, request)
	if err == nil {
		reply.Nodes, err = p.render(p.Name+".html", "div", data)
		if err != nil {
			c.log.Error("console page not rendered", "page", p.Name, "error", err)
		}
	}
	if err != nil {
		reply.Live, reply.Refresh, reply.Error = false, 0, errorText(err)
	}
	writeJSON(w, reply)
}

// errorText returns an error as pages show it.
func errorText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("this took longer than %v: use a narrower filter", pageTimeout)
	}
	return err.Error()
}

// render runs a template of a page and returns the tree of its result. The parameter parent is the
// element that will contain it.
func (p *page) render(name, parent string, data any) ([]any, error) {
	var b bytes.Buffer
	if err := p.template.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return parseTree(&b, parent)
}

// serveAction runs an action of a page.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request, p *page, action string,
	request Request) {
	if !request.CanApprove {
		http.Error(w, "this console can only read: set [admin] console = \"approve\", and run "+
			"gatekit console again", http.StatusForbidden)
		return
	}
	form, ok := readForm(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pageTimeout)
	defer cancel()
	reply := struct {
		Message string `json:"message"`
		Failed  bool   `json:"failed"`
	}{}
	message, err := p.Actions[action](ctx, request, form)
	if reply.Message = message; err != nil {
		reply.Message, reply.Failed = errorText(err), true
	}
	reply.Message = visible(reply.Message)
	writeJSON(w, reply)
}

// serveBadges sends the badges of all pages that have one.
func (c *Console) serveBadges(w http.ResponseWriter, r *http.Request) {
	badges := map[string]int{}
	for name, p := range c.pages {
		if p.Badge != nil {
			badges[name] = p.Badge(r.Context())
		}
	}
	writeJSON(w, badges)
}

// serveLive streams the rows of a page: lines of JSON.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, p *page, request Request) {
	select {
	case c.viewers <- struct{}{}:
		defer func() { <-c.viewers }()
	default:
		http.Error(w, fmt.Sprintf("%d viewers are watching already", maxViewers),
			http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := c.access.onEnd(r, cancel)
	defer stop()
	go func() { // ends with ctx
		select {
		case <-c.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := &lineWriter{w: w, control: http.NewResponseController(w), last: time.Now()}
	if lines.send(struct{}{}) != nil {
		return
	}
	stopTicking := lines.keepAlive(ctx)
	defer stopTicking()
	err := p.Live(ctx, request, func(u Update) error {
		line := struct {
			Nodes   []any  `json:"nodes,omitzero"`
			Omitted int    `json:"omitted,omitzero"`
			After   string `json:"after,omitzero"`
		}{Omitted: u.Omitted, After: u.After}
		if u.Rows != nil {
			nodes, err := p.render("rows", "tbody", u.Rows)
			if err != nil {
				return err
			}
			line.Nodes = nodes
		}
		return lines.send(line)
	})
	if err != nil && ctx.Err() == nil {
		lines.send(struct {
			Error string `json:"error"`
		}{visible(err.Error())})
	}
}

// lineWriter writes lines of JSON and flushes each. It is safe for concurrent use.
type lineWriter struct {
	control *http.ResponseController

	mu   sync.Mutex
	w    http.ResponseWriter
	last time.Time // when the last line was sent
	err  error     // of the last line; nothing is written after it
}

func (l *lineWriter) send(line any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	b, err := json.Marshal(line, json.Deterministic(true))
	if err != nil {
		return err
	}
	l.last = time.Now()
	if l.err = l.control.SetWriteDeadline(l.last.Add(sendTimeout)); l.err != nil {
		return l.err
	}
	// The connection stays open for hours, longer than the server allows for a request.
	if l.err = l.control.SetReadDeadline(time.Time{}); l.err != nil {
		return l.err
	}
	if _, l.err = l.w.Write(append(b, '\n')); l.err == nil {
		l.err = l.control.Flush()
	}
	return l.err
}

// keepAlive sends an empty line when no other line was sent for a while, so that both sides notice
// a broken connection. The returned function waits until no line will be sent.
func (l *lineWriter) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		t := time.NewTicker(keepAlive)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				l.mu.Lock()
				idle := time.Since(l.last) >= keepAlive/2
				l.mu.Unlock()
				if idle {
					l.send(struct{}{})
				}
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

func writeJSON(w http.ResponseWriter, value any) {
	b, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}
