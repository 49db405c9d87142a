package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// isolatedIdle is how long the isolated process runs without a message.
const isolatedIdle = time.Minute

// isolated is a second process of a plugin program. It inspects one message at a time: a message
// that was in flight when the main process ended, or a message of an origin that has ended a
// process. If the message ends this process, too, no other message is lost. The process is started
// at its first use, and ends when it is idle.
type isolated struct {
	host     *Host
	spec     Spec // how to start the process
	offenses offenses

	mu      sync.Mutex // guards the fields below; it is locked before offenses.mu
	waiting []*turn
	busy    bool               // the process is being started, or inspects a message
	process *pluginProcess     // nil while none runs
	cancel  context.CancelFunc // cancels the start; nil before the first start
	idle    *time.Timer        // ends the process; nil before the first message
	closed  bool
	wg      sync.WaitGroup // goroutines that close waits for
}

// turn is a request that waits for the process.
type turn struct {
	message *mcp.Message
	granted chan grant // has room for one value
}

// grant is the process for a turn, or the reason why none could be started.
type grant struct {
	process *pluginProcess
	err     error
}

// inspect sends one request to the process, when no other request is in flight. The process is
// ended if it gives no verdict. wasLost is set if m was in flight when the main process ended.
func (i *isolated) inspect(ctx context.Context, m *mcp.Message, stages []*Stage,
	wasLost bool) ([]pipeline.Verdict, []error, error) {
	process, err := i.acquire(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	works := false
	defer func() { i.release(process, works) }()
	// While the request waited, another message of its origin may have ended a process.
	if _, err := i.offenses.check(m); err != nil {
		works = true
		return nil, nil, err
	}
	for _, s := range stages {
		if process.hasStage(s) {
			continue
		}
		if _, err := process.configure(ctx, s); err != nil {
			works = ctx.Err() == nil && !process.hasEnded()
			return nil, nil, fmt.Errorf("the plugin's process does not have this stage: %w", err)
		}
	}
	verdicts, errs, err := process.inspectUntilExit(ctx, m, stages)
	works = err == nil
	lost, timedOut := (*lostError)(nil), (*timeoutError)(nil)
	switch {
	case errors.As(err, &lost) && lost.processEnded:
		i.offenses.add(m, true)
		from := originOf(m)
		i.host.options.Log.Error("plugin ended by a message", "plugin", i.spec.processName(),
			"server", from.server, "direction", from.direction, "method", m.Method, "bytes",
			inspectedBytes(m))
		i.host.event(i.spec.processName(), "plugin_lost", i.spec.String()+" (isolated process)",
			lost.err)
	case errors.As(err, &timedOut) && timedOut.waited > stages[0].spec.Timeout/2 && wasLost:
		i.offenses.add(m, false)
	}
	return verdicts, errs, err
}

// acquire waits for the process and for the turn of a request, and returns the process.
func (i *isolated) acquire(ctx context.Context, m *mcp.Message) (*pluginProcess, error) {
	t := &turn{m, make(chan grant, 1)}
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return nil, errClosed
	}
	i.waiting = append(i.waiting, t)
	i.next()
	i.mu.Unlock()
	select {
	case g := <-t.granted:
		return g.process, g.err
	case <-ctx.Done():
	}
	i.mu.Lock()
	at := slices.Index(i.waiting, t)
	if at >= 0 {
		i.waiting = slices.Delete(i.waiting, at, at+1)
	}
	i.mu.Unlock()
	if at < 0 { // the turn was granted meanwhile
		if g := <-t.granted; g.process != nil {
			i.release(g.process, true)
		}
	}
	return nil, context.Cause(ctx)
}

// release ends the turn of a request. The process ends unless it still works.
func (i *isolated) release(process *pluginProcess, works bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return // close has ended the process
	}
	i.busy = false
	if !works {
		i.process = nil
		i.wg.Go(process.close)
	} else if i.idle == nil {
		i.idle = time.AfterFunc(isolatedIdle, i.endIdle)
	} else {
		i.idle.Reset(isolatedIdle)
	}
	i.next()
}

// next gives the process to the next request, or starts the process. The caller holds i.mu.
func (i *isolated) next() {
	if i.busy || len(i.waiting) == 0 || i.closed {
		return
	}
	i.busy = true
	if i.process != nil && i.process.hasEnded() {
		i.wg.Go(i.process.close)
		i.process = nil
	}
	if i.process == nil {
		ctx, cancel := context.WithCancel(context.Background())
		i.cancel = cancel
		i.wg.Go(func() {
			defer cancel()
			i.start(ctx)
		})
		return
	}
	i.takeTurn().granted <- grant{process: i.process}
}

// takeTurn removes the next turn from the waiting ones, and returns it. There must be one. Messages
// of origins that have ended no process come first; of these, small messages, which take the least
// time. The caller holds i.mu.
func (i *isolated) takeTurn() *turn {
	t := slices.MinFunc(i.waiting, func(a, b *turn) int {
		offendsA, offendsB := i.offenses.has(a.message), i.offenses.has(b.message)
		if offendsA != offendsB {
			if offendsB {
				return -1
			}
			return 1
		}
		return cmp.Compare(inspectedBytes(a.message), inspectedBytes(b.message))
	})
	at := slices.Index(i.waiting, t)
	i.waiting = slices.Delete(i.waiting, at, at+1)
	return t
}

// start starts the process. If that fails, all waiting requests fail.
func (i *isolated) start(ctx context.Context) {
	process, err := i.host.startProcess(ctx, i.spec)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy = false
	if err != nil {
		i.fail(err)
		return
	}
	if i.closed {
		i.wg.Go(process.close)
		return
	}
	i.process = process
	i.next()
}

// fail fails all waiting requests. The caller holds i.mu.
func (i *isolated) fail(err error) {
	for _, t := range i.waiting {
		t.granted <- grant{err: err}
	}
	i.waiting = nil
}

// closeStage closes a stage in the process, if the process has it.
func (i *isolated) closeStage(s *Stage, timeout time.Duration) {
	i.mu.Lock()
	process := i.process
	i.mu.Unlock()
	if process != nil {
		process.closeStage(s, timeout)
	}
}

// endIdle ends the process if it has nothing to do.
func (i *isolated) endIdle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if process := i.process; process != nil && !i.busy && !i.closed {
		i.process = nil
		i.wg.Go(process.close)
	}
}

// close ends the process and waits until it is gone.
func (i *isolated) close() {
	i.mu.Lock()
	i.closed = true
	i.fail(errClosed)
	if i.cancel != nil {
		i.cancel()
	}
	if i.idle != nil {
		i.idle.Stop()
	}
	if process := i.process; process != nil {
		i.process = nil
		i.wg.Go(process.close)
	}
	i.mu.Unlock()
	i.wg.Wait()
}
