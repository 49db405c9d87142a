package console

import (
	"bytes"
	"cmp"
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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/identity"
	"gatekit/transport/connect"
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
	Scope Scope        // the largest scope of a token that is exchanged for a code
	Pages []Page       // in the order of the navigation; the first is shown first
	Login *Login       // nil: only codes open the console
	Log   *slog.Logger // nil: nothing is logged
	// Command is the command that opens the console, in hints. Default: gatekit console.
	Command string
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
	Viewer     Viewer
	// After is the position after which Live begins: Update.After of the last update that the
	// browser got, or the attribute data-after of the element with id="live".
	After string
}

// Viewer identifies a person at the console. Records of approvals name the viewer.
type Viewer struct {
	Session string // names the session, such as "console session 5kq2ab"; it is not secret
	// Principal is the ID of the principal who logged in. It is "" for a session that began with a
	// code: only the user who runs Gatekit can get one.
	Principal string
}

// Update is a change of a page's live rows.
type Update struct {
	Rows    []*Row // newest first
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
	shell   *template.Template
	paths   []string // that begin the paths of the console, each with a slash at its end
	base    string   // the URL of the shell; "" without a Login
	origin  string   // of PublicURL; "" without a Login
	access  access
	logins  logins
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
		guard: http.NewCrossOriginProtection(), paths: []string{Prefix},
		viewers: make(chan struct{}, maxViewers), closed: make(chan struct{})}
	c.o.Command = cmp.Or(o.Command, "gatekit console")
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
	var err error
	if c.shell, err = template.ParseFS(files, "templates/shell.html"); err != nil {
		return nil, fmt.Errorf("page of the console: %w", err)
	}
	if err := c.renderShell(io.Discard, ""); err != nil {
		return nil, err
	}
	if o.Login == nil {
		return c, nil
	}
	u, err := url.Parse(o.Login.PublicURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the public URL %q of the console is not an absolute URL",
			o.Login.PublicURL)
	}
	c.origin = u.Scheme + "://" + u.Host
	c.base = strings.TrimSuffix(o.Login.PublicURL, "/") + Prefix
	if path := strings.TrimSuffix(u.Path, "/"); path != "" {
		// Something before Gatekit may remove the beginning of the path, or not.
		c.paths = append(c.paths, path+Prefix)
	}
	return c, c.guard.AddTrustedOrigin(c.origin)
}

// renderShell writes the shell. If the problem is not "", the shell shows it with the login.
func (c *Console) renderShell(w io.Writer, problem string) error {
	var issuers []string
	if c.o.Login != nil {
		issuers = c.o.Login.Issuers
	}
	err := c.shell.Execute(w, struct {
		Pages   []Page
		Issuers []string
		Problem string
		Command string
	}{c.o.Pages, issuers, problem, c.o.Command})
	if err != nil {
		return fmt.Errorf("page of the console: %w", err)
	}
	return nil
}

// writeShell sends the shell.
func (c *Console) writeShell(w http.ResponseWriter, r *http.Request, status int, problem string) {
	var b bytes.Buffer
	if err := c.renderShell(&b, problem); err != nil {
		http.Error(w, "the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(b.Bytes())
	}
}

// EndPrincipal ends the sessions of a principal, with their streams.
func (c *Console) EndPrincipal(principal string) {
	c.access.endWhere(func(s *session) bool {
		return s.principal != nil && s.principal.ID() == principal
	})
}

// Close ends all streams. It does not end the requests for pages, which are short.
func (c *Console) Close() { c.close() }

// rest returns the part of a path after that of the console.
func (c *Console) rest(path string) (string, bool) {
	for _, prefix := range c.paths {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// Serves reports whether a path is one of the console.
func (c *Console) Serves(path string) bool {
	_, ok := c.rest(path + "/") // the console without its slash, too
	return ok
}

// ServeHTTP implements http.Handler. The caller has checked Host.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	path, ok := c.rest(r.URL.Path)
	api, isAPI := strings.CutPrefix(path, "api/")
	isGet := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch reason := c.refusal(r, isAPI); {
	case reason != "":
		c.recordRefusal(r, http.StatusForbidden, "", reason)
		http.Error(w, reason, http.StatusForbidden)
	case isAPI:
		c.serveAPI(w, r, api)
	case !isGet:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
	case !ok && c.base != "":
		redirect(w, c.base)
	case path == "" && ok:
		c.writeShell(w, r, http.StatusOK, "")
	case path == loginPath && c.o.Login != nil && r.Method == http.MethodGet:
		c.beginLogin(w, r)
	case path == callbackPath && c.o.Login != nil && r.Method == http.MethodGet:
		c.finishLogin(w, r)
	case path == "console.js" || path == "console.css":
		content, err := files.ReadFile("static/" + path)
		if err != nil {
			http.Error(w, "this file is missing", http.StatusInternalServerError)
			return
		}
		serveFile(w, r, path, content)
	default:
		http.Error(w, "no such page: try "+Prefix, http.StatusNotFound)
	}
}

// recordRefusal logs that a request is refused. If other machines can send requests, it also
// records that.
func (c *Console) recordRefusal(r *http.Request, status int, principal, reason string) {
	c.log.Warn("console request refused", "reason", reason, "path", r.URL.Path)
	if c.o.Login != nil {
		c.o.Login.RecordRefusal(r, connect.Refusal{Status: status, Principal: principal,
			Reason: "console: " + reason})
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
			c.serveSession(w, r)
		}
		return
	}
	s := c.access.session(r)
	if s != nil && s.principal != nil && c.o.Login.Revoked(s.principal) {
		c.access.end(s)
		s = nil
	}
	if s == nil {
		c.recordRefusal(r, http.StatusUnauthorized, "", "the token is missing or has ended")
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "log in again", http.StatusUnauthorized)
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
			c.serveLive(w, r, p, s)
		}
	case kind == "do" && p.Actions[action] != nil:
		if allowMethod(w, r, http.MethodPost) {
			c.serveAction(w, r, p, action, s)
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
	return Request{Query: query, CanApprove: s.scope == ScopeApprove, After: after,
		Viewer: Viewer{Session: s.name, Principal: s.principal.ID()}}
}

// serveSession opens a session: for a code, or for the cookie of a finished login.
func (c *Console) serveSession(w http.ResponseWriter, r *http.Request) {
	form, ok := readForm(w, r)
	if !ok {
		return
	}
	var scope Scope
	var principal *identity.Principal
	if c.o.Login == nil {
		scope, ok = c.access.takeCode(form.Get("code"))
	} else if a := c.takeFinished(w, r); a != nil {
		scope, principal = a.scope, a.principal
	} else {
		ok = false
	}
	if !ok {
		reason, hint := "the code is wrong, expired or was used before", "run "+c.o.Command+" again"
		if c.o.Login != nil {
			reason, hint = "the login has expired or was used before", "log in again"
		}
		c.recordRefusal(r, http.StatusForbidden, "", reason)
		http.Error(w, reason+": "+hint, http.StatusForbidden)
		return
	}
	token, s := c.access.open(scope, principal)
	c.log.Info("console session opened", "session", s.name, "scope", s.scope,
		"principal", principal.ID())
	writeJSON(w, struct {
		Token string `json:"token"`
		Scope Scope  `json:"scope"`
		User  string `json:"user"`
	}{token, s.scope, visible(principal.ID())})
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
	s *session) {
	request := c.request(r, s)
	if !request.CanApprove {
		c.recordRefusal(r, http.StatusForbidden, s.principal.ID(), fmt.Sprintf("the session can "+
			"only read, and asked for %q of the page %q", action, p.Name))
		hint := `set [admin] console = "approve", and run gatekit console again`
		if c.o.Login != nil {
			hint = `[listen.auth.roles] "console/approve" has who may approve`
		}
		http.Error(w, "this console can only read: "+hint, http.StatusForbidden)
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

func writeJSON(w http.ResponseWriter, value any) {
	b, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}
