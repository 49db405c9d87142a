package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The first restart of a process is immediate. The wait before each later restart grows from
// firstWait to longestWait.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 30 * time.Second
	// stableAfter is how long a process must run before its next restart is immediate again.
	stableAfter = time.Minute
)

// errClosed is the error of operations on a plugin that is being closed.
var errClosed = errors.New("the plugin is being closed")

// supervisor keeps the process of one plugin program running: the main process. It starts a second
// process if a message may have ended the main process.
type supervisor struct {
	host    *Host
	spec    Spec               // spec of one of the stages: how to start the process
	stop    context.CancelFunc // ends run
	wake    chan struct{}      // holds one value when the next start must not wait any longer
	stopped chan struct{}      // closed when run and the last process have ended
	// isolated inspects the messages that may have ended the main process.
	isolated isolated

	mu       sync.Mutex // guards the fields below
	stages   map[*Stage]bool
	process  *pluginProcess // nil while none runs
	changed  chan struct{}  // closed and replaced when process, err or nextTry change
	err      error          // why no process runs
	nextTry  time.Time      // when the next process is started
	timeouts int            // requests in a row that got no verdict in time
	starts   int            // processes started so far
}

// startSupervisor starts the process of a spec. It also starts a goroutine that restarts the
// process until close is called. An error means that the first start failed.
func (h *Host) startSupervisor(ctx context.Context, spec Spec) (*supervisor, error) {
	process, err := h.startProcess(ctx, spec)
	if err != nil {
		return nil, err
	}
	runCtx, stop := context.WithCancel(context.Background())
	p := &supervisor{host: h, spec: spec, stop: stop, wake: make(chan struct{}, 1),
		stopped: make(chan struct{}), isolated: isolated{host: h, spec: spec},
		stages: map[*Stage]bool{}, process: process, changed: make(chan struct{}), starts: 1}
	go p.run(runCtx, process)
	return p, nil
}

// run waits for the end of each process, and starts the next one.
func (p *supervisor) run(ctx context.Context, process *pluginProcess) {
	defer close(p.stopped)
	waits := &backoff.ExponentialBackOff{InitialInterval: firstWait, Multiplier: 2,
		MaxInterval: longestWait}
	var wait time.Duration // before the next restart; zero before the first restart
	started := time.Now()
	for {
		if process != nil {
			select {
			case <-process.done():
			case <-ctx.Done():
				p.set(nil, errClosed, time.Time{})
				process.close()
				return
			}
			exitErr := process.runner.exitError()
			process.close()
			// If a message ended the process, its origin cannot do so again for some time. Then the
			// restart is immediate, because other messages must not wait.
			if time.Since(started) > stableAfter || process.unanswered.Load() > 0 {
				waits.Reset()
				wait = 0
			}
			p.set(nil, fmt.Errorf("%s is down: %w", p.spec, exitErr), time.Now().Add(wait))
			p.host.event(p.spec.processName(), "plugin_lost", p.spec.String(), exitErr)
		}
		select {
		case <-time.After(wait):
		case <-p.wake:
		case <-ctx.Done():
			p.set(nil, errClosed, time.Time{})
			return
		}
		wait = waits.NextBackOff()
		var err error
		if process, err = p.restart(ctx); err != nil {
			p.set(nil, fmt.Errorf("%s could not be restarted: %w", p.spec, err),
				time.Now().Add(wait))
			if ctx.Err() == nil {
				p.host.event(p.spec.processName(), "plugin_lost", p.spec.String(), err)
			}
			continue
		}
		started = time.Now()
	}
}

// restart starts a process and makes the stages in it. It leaves out a stage that cannot be made,
// for example because the stage's configuration names a file that is gone. Inspections by this
// stage then fail. restart fails if no stage can be made.
func (p *supervisor) restart(ctx context.Context) (*pluginProcess, error) {
	process, err := p.host.startProcess(ctx, p.spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.host.options.StartTimeout)
	defer cancel()
	p.mu.Lock()
	stages := make([]*Stage, 0, len(p.stages))
	for s := range p.stages {
		stages = append(stages, s)
	}
	p.mu.Unlock()
	made := 0
	for _, s := range stages {
		// The pipeline is already built, so the new declarations about the stage are ignored.
		if _, configErr := process.configure(ctx, s); configErr != nil {
			err = fmt.Errorf("%s: its configuration: %w", s.spec, configErr)
			p.host.event(s.spec.Name, "plugin_lost", s.spec.String(), err)
			continue
		}
		made++
	}
	if made == 0 && err != nil {
		process.close()
		return nil, err
	}
	// The event is sent before set is called, so that it is recorded before the first verdict
	// of the new process.
	p.host.event(p.spec.processName(), "plugin_restarted", p.spec.String(), nil)
	p.set(process, nil, time.Time{})
	p.mu.Lock()
	for _, s := range stages {
		if !p.stages[s] { // removed meanwhile
			p.host.wg.Go(func() { process.closeStage(s, shutdownTimeout) })
		}
	}
	p.mu.Unlock()
	return process, nil
}

// set stores the state of the process, and wakes the waiting calls of awaitProcess.
func (p *supervisor) set(process *pluginProcess, err error, nextTry time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if process != nil {
		p.starts++
	}
	p.process, p.err, p.nextTry, p.timeouts = process, err, nextTry, 0
	close(p.changed)
	p.changed = make(chan struct{})
}

// runningProcess returns the running process, or nil if none runs.
func (p *supervisor) runningProcess() *pluginProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || p.process.hasEnded() {
		return nil
	}
	return p.process
}

// awaitProcess returns the running process. If none runs, it waits for the next one until ctx ends.
// It does not wait if the next start is due after the deadline of ctx, or if no start will follow.
func (p *supervisor) awaitProcess(ctx context.Context) (*pluginProcess, error) {
	for {
		p.mu.Lock()
		process, changed, err, nextTry := p.process, p.changed, p.err, p.nextTry
		p.mu.Unlock()
		switch deadline, hasDeadline := ctx.Deadline(); {
		case process != nil && !process.hasEnded():
			return process, nil
		case process == nil && nextTry.IsZero(), hasDeadline && nextTry.After(deadline):
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

// startNow ends the wait before the next start, if no process runs.
func (p *supervisor) startNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil && !p.nextTry.IsZero() {
		p.nextTry = time.Now()
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// register adds a stage. restart makes all added stages in each new process.
func (p *supervisor) register(s *Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages[s] = true
}

// configure makes a stage in the running process.
func (p *supervisor) configure(ctx context.Context, s *Stage) error {
	ctx, cancel := context.WithTimeout(ctx, p.host.options.StartTimeout)
	defer cancel()
	p.startNow()
	process, err := p.awaitProcess(ctx)
	if err != nil {
		return err
	}
	declared, err := process.configure(ctx, s)
	if err != nil {
		return err
	}
	s.counts = process.hasSharedState(s.spec)
	return s.accept(declared)
}

// remove removes a stage, and reports whether the stage was the last one. If so, the caller must
// close the process. Otherwise remove closes the stage in the running process.
func (p *supervisor) remove(s *Stage) (isLast bool) {
	p.mu.Lock()
	delete(p.stages, s)
	isLast = len(p.stages) == 0
	process := p.process
	p.mu.Unlock()
	if !isLast && process != nil {
		p.host.wg.Go(func() {
			process.closeStage(s, p.host.options.StartTimeout)
			p.isolated.closeStage(s, p.host.options.StartTimeout)
		})
	}
	return isLast
}

// close ends the processes and waits until they are gone.
func (p *supervisor) close() {
	p.stop()
	p.isolated.close()
	<-p.stopped
}
