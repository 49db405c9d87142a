package console

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// serveLive streams the rows of a page: lines of JSON.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, p *page, s *session) {
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
	defer context.AfterFunc(s.ended, cancel)()
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
	err := p.Live(ctx, c.request(r, s), func(u Update) error {
		line, err := p.appendUpdate(nil, u)
		if err != nil {
			return err
		}
		return lines.write(line)
	})
	if err != nil && ctx.Err() == nil {
		lines.send(struct {
			Error string `json:"error"`
		}{visible(err.Error())})
	}
}

// appendUpdate appends the line of an update: {"nodes":[…],"omitted":1,"after":"2"}.
func (p *page) appendUpdate(line []byte, u Update) ([]byte, error) {
	line = append(line, `{"nodes":[`...)
	begin := len(line)
	for _, row := range u.Rows {
		nodes, err := row.render(p)
		if err != nil {
			return nil, err
		}
		if len(line) > begin && len(nodes) > 0 {
			line = append(line, ',')
		}
		line = append(line, nodes...)
	}
	line = append(line, `],"omitted":`...)
	line = strconv.AppendInt(line, int64(u.Omitted), 10)
	after, err := jsontext.AppendQuote(append(line, `,"after":`...), u.After)
	return append(after, '}'), err
}

// Row is a live row of a page. It is rendered at most once, when the first viewer gets it, so that
// viewers can share it. It is safe for concurrent use.
type Row struct {
	data  func() any
	once  sync.Once
	nodes []byte // as JSON, with commas between them
	err   error
}

// NewRow returns a row. data returns the data of the template "rows" of the page.
func NewRow(data func() any) *Row { return &Row{data: data} }

func (r *Row) render(p *page) ([]byte, error) {
	r.once.Do(func() {
		nodes, err := p.render("rows", "tbody", r.data())
		if err == nil {
			r.nodes, err = json.Marshal(nodes, json.Deterministic(true))
		}
		if r.err = err; err == nil {
			r.nodes = r.nodes[1 : len(r.nodes)-1] // without the brackets of the list
		}
	})
	return r.nodes, r.err
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
	b, err := json.Marshal(line, json.Deterministic(true))
	if err != nil {
		return err
	}
	return l.write(b)
}

func (l *lineWriter) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.last = time.Now()
	if l.err = l.control.SetWriteDeadline(l.last.Add(sendTimeout)); l.err != nil {
		return l.err
	}
	// The connection stays open for hours, longer than the server allows for a request.
	if l.err = l.control.SetReadDeadline(time.Time{}); l.err != nil {
		return l.err
	}
	if _, l.err = l.w.Write(append(line, '\n')); l.err == nil {
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
