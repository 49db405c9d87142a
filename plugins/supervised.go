package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
)

// How a process that ends is started again.
const (
	firstWait   = 250 * time.Millisecond // before the second time; the first is at once
	longestWait = 30 * time.Second
	steady      = time.Minute // a process that ran so long starts the count anew
	// when a question was lost: how soon it is known that the process has ended, if it has
	endsWithin = time.Second
	// questions in a row without a verdict in time, after which it is taken to hang
	maxLate = 3
)

var errClosed = errors.New("the plugin is being closed")

// supervised is a plugin's program, kept running.
type supervised struct {
	h     *Host
	spec  Spec // of one of its stages: how it is started
	stop  context.CancelFunc
	hurry chan struct{} // holds one when it is to be started again now
	over  chan struct{} // closed when its last process has ended and no other will be started

	again chan struct{} // holds one: whose question is put again

	mu      sync.Mutex
	stages  map[*Stage]bool
	now     *generation   // nil while none runs
	changed chan struct{} // closed and made anew when what is here has changed
	err     error         // why none runs
	due     time.Time     // when the next is started
	late    int           // questions in a row without a verdict in time
	starts  int           // of its processes
}

// supervise starts a program. It is kept running until stop; the error is that of its first start.
func (h *Host) supervise(ctx context.Context, s Spec) (*supervised, error) {
	p := &supervised{h: h, hurry: make(chan struct{}, 1), spec: s, over: make(chan struct{}),
		again: make(chan struct{}, 1), stages: map[*Stage]bool{}, changed: make(chan struct{})}
	g, err := h.launch(ctx, s)
	if err != nil {
		return nil, err
	}
	p.now, p.starts = g, 1
	life, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.run(life, g)
	return p, nil
}

// run waits for the end of each process, and starts the next.
func (p *supervised) run(ctx context.Context, g *generation) {
	defer close(p.over)
	fails, began := 0, time.Now()
	for {
		if g != nil {
			select {
			case <-g.gone:
			case <-ctx.Done():
				p.set(nil, errClosed, time.Time{})
				g.close()
				return
			}
			how := g.runner.how()
			g.close()
			if time.Since(began) > steady {
				fails = 0
			}
			p.set(nil, fmt.Errorf("%s is down: %w", p.spec.what(), how),
				time.Now().Add(backOff(fails)))
			p.h.event(p.spec.label(), "plugin_lost", p.spec.what(), how)
		}
		select {
		case <-time.After(backOff(fails)):
		case <-p.hurry:
		case <-ctx.Done():
			p.set(nil, errClosed, time.Time{})
			return
		}
		fails++
		var err error
		if g, err = p.restart(ctx); err != nil {
			p.set(nil, fmt.Errorf("%s could not be started again: %w", p.spec.what(), err),
				time.Now().Add(backOff(fails)))
			if ctx.Err() == nil {
				p.h.event(p.spec.label(), "plugin_lost", p.spec.what(), err)
			}
			continue
		}
		began = time.Now()
	}
}

// restart starts a process and makes the stages in it. One that cannot be made, as its
// configuration is of another time, is left out, and denies; without any, it was no start.
func (p *supervised) restart(ctx context.Context) (*generation, error) {
	g, err := p.h.launch(ctx, p.spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.h.options.StartTimeout)
	defer cancel()
	p.mu.Lock()
	stages := make([]*Stage, 0, len(p.stages))
	for s := range p.stages {
		stages = append(stages, s)
	}
	p.mu.Unlock()
	made := 0
	for _, s := range stages { // what it says of them now is of no account: the pipeline is made
		if _, fault := g.configure(ctx, s); fault != nil {
			err = fmt.Errorf("%s: its configuration: %w", s.spec.what(), fault)
			p.h.event(s.spec.Name, "plugin_lost", s.spec.what(), err)
			continue
		}
		made++
	}
	if made == 0 && err != nil {
		g.close()
		return nil, err
	}
	p.h.event(p.spec.label(), "plugin_restarted", p.spec.what(), nil) // before anybody asks it
	p.set(g, nil, time.Time{})
	p.mu.Lock()
	for _, s := range stages {
		if !p.stages[s] { // it was given up meanwhile
			p.h.wg.Go(func() { g.forgetLate(s) })
		}
	}
	p.mu.Unlock()
	return g, nil
}

// wake has a program that is down started again at once.
func (p *supervised) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil && !p.due.IsZero() {
		p.due = time.Now()
		select {
		case p.hurry <- struct{}{}:
		default:
		}
	}
}

func backOff(fails int) time.Duration {
	if fails == 0 {
		return 0
	}
	return min(firstWait<<min(fails-1, 20), longestWait)
}

func (p *supervised) set(g *generation, err error, due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != nil {
		p.starts++
	}
	p.now, p.err, p.due, p.late = g, err, due, 0
	close(p.changed)
	p.changed = make(chan struct{})
}

// running answers the process, and waits for it when it is being started, as long as ctx and as
// that makes sense.
func (p *supervised) running(ctx context.Context) (*generation, error) {
	for {
		p.mu.Lock()
		g, changed, err, due := p.now, p.changed, p.err, p.due
		p.mu.Unlock()
		switch deadline, bounded := ctx.Deadline(); {
		case g != nil && !g.ended():
			return g, nil
		case g == nil && due.IsZero(), bounded && due.After(deadline):
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
	}
}

func (g *generation) ended() bool {
	select {
	case <-g.gone:
		return true
	default:
		return false
	}
}

// group is the stages of a process that see the same of a message.
type group struct {
	process *supervised
	see     proto.Visibility
}

// InspectAll implements pipeline.StageGroup.
func (g group) InspectAll(ctx context.Context, m *mcp.Message,
	stages []pipeline.Stage) ([]pipeline.Verdict, []error, error) {
	its := make([]*Stage, len(stages))
	for i, s := range stages {
		its[i] = s.(*Stage)
	}
	return g.process.inspect(ctx, m, its)
}

// inspect asks stages about m. A question that was lost is put once more, one such at a time: one
// of them may be what ended the process, and is not to take those that were lost with it along
// again. Questions that are put for the first time do not wait for them.
func (p *supervised) inspect(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	verdicts, errs, err := p.once(ctx, m, stages)
	if lost := (*broken)(nil); !errors.As(err, &lost) {
		return verdicts, errs, err
	}
	select {
	case p.again <- struct{}{}:
		defer func() { <-p.again }()
		return p.once(ctx, m, stages)
	case <-ctx.Done():
		return nil, nil, err
	}
}

// once asks stages about m, and returns from a question that was lost when it is known whether the
// process has ended.
func (p *supervised) once(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	g, err := p.running(ctx)
	if err != nil {
		return nil, nil, err
	}
	verdicts, errs, err := g.inspect(ctx, m, stages)
	lost := (*broken)(nil)
	if errors.As(err, &lost) {
		select {
		case <-g.gone:
			err = &broken{fmt.Errorf("%w; %w", g.runner.how(), lost.err)}
		case <-time.After(endsWithin):
		case <-ctx.Done():
		}
	}
	p.heard(g, err, stages)
	return verdicts, errs, err
}

// heard counts questions that had their time and no verdict, or were lost though the process lives,
// and kills a process that answers none.
func (p *supervised) heard(g *generation, err error, stages []*Stage) {
	lost, silent := (*broken)(nil), (*silence)(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.late = 0
		return
	case p.now != g || g.ended():
		return
	case errors.As(err, &lost):
	case errors.As(err, &silent) && silent.waited > stages[0].spec.Timeout/2:
	default:
		return
	}
	if p.late++; p.late >= maxLate {
		p.late = 0
		p.h.options.Log.Error("killed: it gives no verdicts", "plugin", p.spec.label(),
			"questions", maxLate)
		g.kill()
	}
}

// close ends the process.
func (p *supervised) close() {
	p.stop()
	<-p.over
}
