package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
)

// Options of a host.
type Options struct {
	// the command whose process offers the built-in plugins: its path, the name that it is told it
	// has, arguments
	BuiltinCommand []string
	// where folders of processes are made; "" is the system's for temporary files, and /tmp takes
	// the place of one whose path is too long for sockets
	Dir          string
	StartTimeout time.Duration // of a process, until its stages are made; 0 is 10 s
	MaxMessage   int           // bytes of the largest message; 0 is 16 MiB
	// bytes that a process may hold; 0 is 1 GiB, negative does not look (Linux only)
	MaxMemory int64
	Log       *slog.Logger
	// Event is told what the record should know: that a plugin was lost, or runs again.
	Event func(plugin, action, reason string, err error)
}

// Host runs plugins. Its methods may be called from many goroutines.
type Host struct {
	options Options
	life    context.Context // ends with Close
	end     context.CancelFunc

	loading sync.Mutex // one Load at a time

	mu        sync.Mutex // guards what follows, and the uses of stages
	processes map[string]*supervised
	stages    map[string]*Stage
	old       []*Set // that are to be closed, the oldest first
	closed    bool
	wg        sync.WaitGroup
}

// lingers is how long the stages of a configuration that was replaced are kept for calls that began
// under it; maxOld is how many such are kept.
const (
	lingers = 15 * time.Minute
	maxOld  = 4
)

// New makes a host that runs nothing yet.
func New(o Options) *Host {
	if o.StartTimeout <= 0 {
		o.StartTimeout = 10 * time.Second
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 1 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{options: o, processes: map[string]*supervised{}, stages: map[string]*Stage{}}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

func (h *Host) event(plugin, action, reason string, err error) {
	if h.options.Event != nil {
		h.options.Event(plugin, action, reason, err)
	}
}

// Warn logs something about a plugin that its owner should know.
func (h *Host) Warn(what, plugin string) { h.options.Log.Warn(what, "plugin", plugin) }

// Set is the plugins of one configuration.
type Set struct {
	h      *Host
	stages []*Stage
	once   sync.Once
}

// LoadError is what is wrong with one plugin.
type LoadError struct {
	Index int // of its spec
	Err   error
}

func (f *LoadError) Error() string { return f.Err.Error() }
func (f *LoadError) Unwrap() error { return f.Err }

// Load starts what specs need and does not run yet, and answers its stages. The error joins a
// *Fault for each plugin that cannot be used; nothing is kept then that did not run before.
func (h *Host) Load(ctx context.Context, specs []Spec) (*Set, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	set := &Set{h: h}
	var faults []error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(errClosed) })()
	for i, s := range specs {
		if ctx.Err() != nil {
			faults = append(faults, context.Cause(ctx))
			break
		}
		stage, err := h.stage(ctx, s)
		if err != nil {
			faults = append(faults, &LoadError{i, fmt.Errorf("%s: %w", s.what(), err)})
			continue
		}
		set.stages = append(set.stages, stage)
	}
	if faults != nil {
		set.end()
		return nil, errors.Join(faults...)
	}
	return set, nil
}

// stage answers the stage of a spec, made in its process.
func (h *Host) stage(ctx context.Context, s Spec) (*Stage, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	if known := h.stages[s.key()]; known != nil && known.same(s) {
		known.uses++
		h.mu.Unlock()
		return known, nil
	}
	p := h.processes[s.program()]
	stage := &Stage{spec: s, process: p, uses: 1}
	if p != nil {
		p.enter(stage) // now, or an old set could end the process as one that nobody uses
	}
	h.mu.Unlock()
	if p == nil {
		var err error
		if p, err = h.supervise(ctx, s); err != nil {
			return nil, err
		}
		stage.process = p
		p.enter(stage)
		h.mu.Lock()
		h.processes[s.program()] = p
		h.mu.Unlock()
	}
	if err := p.add(ctx, stage); err != nil {
		if p.drop(stage) {
			h.mu.Lock()
			delete(h.processes, s.program())
			h.mu.Unlock()
			p.close()
		}
		return nil, err
	}
	h.mu.Lock()
	h.stages[s.key()] = stage
	h.mu.Unlock()
	return stage, nil
}

// same says that the stage is what the spec wants, in all but what the pipeline does.
func (s *Stage) same(t Spec) bool {
	return s.spec.Grants == t.Grants && fmt.Sprint(s.spec.Servers) == fmt.Sprint(t.Servers)
}

// enter counts a stage among those of the program, so that a process that is started makes it.
func (p *supervised) enter(s *Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages[s] = true
}

// add makes a stage in the process.
func (p *supervised) add(ctx context.Context, s *Stage) error {
	ctx, cancel := context.WithTimeout(ctx, p.h.options.StartTimeout)
	defer cancel()
	p.wake()
	g, err := p.running(ctx)
	if err != nil {
		return err
	}
	answer, err := g.configure(ctx, s)
	if err != nil {
		return err
	}
	return s.accept(answer)
}

// Stages are the plugins for a pipeline, in the order of their specs.
func (s *Set) Stages(specs []Spec) []pipeline.StageConfig {
	named := make([]pipeline.StageConfig, len(s.stages))
	for i, stage := range s.stages {
		spec := specs[i]
		named[i] = pipeline.StageConfig{Name: spec.Name, Stage: stage, Wants: stage.wants,
			Renames: stage.renames, Timeout: spec.Timeout, SkipOnError: spec.Skip}
		if spec.Use != "" {
			named[i].Group = group{stage.process, stage.see}
		}
	}
	return named
}

// SelfTest is what a plugin says that it does something about.
type SelfTest struct {
	Description string
	Message     *mcp.Message
	Action      pipeline.Action
}

// SelfTest answers that of the plugin of the spec at i; nil when it has none.
func (s *Set) SelfTest(i int) (*SelfTest, error) {
	c := s.stages[i].canary
	if c == nil {
		return nil, nil
	}
	if !proto.HasValidBodies(c.Message) {
		return nil, errors.New("its body is no JSON")
	}
	m, err := proto.ToMessage(c.Message)
	if err != nil {
		return nil, err
	}
	action, err := proto.ToAction(c.Action)
	return &SelfTest{Description: clip(c.What, maxReason), Message: m, Action: action}, err
}

// Close says that no new call will use the set. What no other set has is ended when the calls that
// began with it have had time to end.
func (s *Set) Close() {
	s.h.mu.Lock()
	if s.h.closed {
		s.h.mu.Unlock()
		return
	}
	s.h.old = append(s.h.old, s)
	var now *Set
	if len(s.h.old) > maxOld {
		now, s.h.old = s.h.old[0], s.h.old[1:]
	}
	s.h.mu.Unlock()
	if now != nil {
		now.end()
	}
	time.AfterFunc(lingers, s.end)
}

// end gives the stages up.
func (s *Set) end() {
	s.once.Do(func() {
		h := s.h
		var idle []*supervised
		h.mu.Lock()
		for _, stage := range s.stages {
			if stage.uses--; stage.uses > 0 {
				continue
			}
			if h.stages[stage.spec.key()] == stage {
				delete(h.stages, stage.spec.key())
			}
			if stage.process.drop(stage) && h.processes[stage.spec.program()] == stage.process {
				delete(h.processes, stage.spec.program())
				idle = append(idle, stage.process)
			}
		}
		h.mu.Unlock()
		for _, p := range idle {
			p.close()
		}
	})
}

// drop takes a stage out of the process; last says that it was the last.
func (p *supervised) drop(s *Stage) (last bool) {
	p.mu.Lock()
	delete(p.stages, s)
	last = len(p.stages) == 0
	g := p.now
	p.mu.Unlock()
	if !last && g != nil {
		p.h.wg.Go(func() {
			ctx, cancel := context.WithTimeout(g.life, p.h.options.StartTimeout)
			defer cancel()
			g.forget(ctx, s)
		})
	}
	return last
}

// Close ends all plugins.
func (h *Host) Close() error {
	h.end()
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	h.closed = true
	processes := h.processes
	h.processes, h.stages, h.old = nil, nil, nil
	h.mu.Unlock()
	for _, p := range processes {
		h.wg.Go(p.close)
	}
	h.wg.Wait()
	return nil
}
