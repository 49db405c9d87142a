package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options configure a host.
type Options struct {
	// BuiltinCommand is the command that runs built-in plugins: the path of the program, its
	// argv[0], and its arguments. BuiltinPlugins are further arguments: the names of all built-in
	// plugins. A process that runs one plugin gets only the name of this plugin.
	BuiltinCommand, BuiltinPlugins []string
	// Dir is the folder in which each process gets a folder of its own; "" is the system's folder
	// for temporary files. If the path of Dir is too long for sockets, /tmp is used instead.
	Dir          string
	StartTimeout time.Duration // time to start a process and make its stages; 0 is 10 s
	MaxMessage   int           // bytes of the largest message; 0 is 16 MiB
	// MaxMemory is how many bytes of memory a process may use (Linux only); 0 is 1 GiB, negative is
	// no limit.
	MaxMemory int64
	Log       *slog.Logger
	// Overflow is a folder for lines of stderr that are too many for the log; "" drops them.
	Overflow string
	// Shared lets built-in plugins that can do so count together with other replicas; nil lets each
	// plugin count by itself.
	Shared *SharedState
	// Event is called when a plugin is lost or restarted. The audit log records these events.
	Event func(plugin, action, reason string, err error)
}

// Host runs plugins. Its methods may be called from many goroutines.
type Host struct {
	options Options

	// loading is held by Load, and by Close once Close has cancelled Load. It is locked before mu.
	loading sync.Mutex

	// mu guards the fields below and Stage.uses. It is locked before supervisor.mu.
	mu          sync.Mutex
	supervisors map[string]*supervisor // by Spec.processKey
	stages      map[string]*Stage      // by Spec.stageKey
	replaced    []*Set                 // sets that wait to be released, oldest first
	cancelLoad  context.CancelCauseFunc
	closed      bool
	wg          sync.WaitGroup // goroutines that Close waits for
}

// New returns a host that runs no plugins yet.
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
	return &Host{options: o, supervisors: map[string]*supervisor{}, stages: map[string]*Stage{}}
}

// Warn logs a warning about a plugin.
func (h *Host) Warn(message, plugin string) { h.options.Log.Warn(message, "plugin", plugin) }

func (h *Host) event(plugin, action, reason string, err error) {
	if h.options.Event != nil {
		h.options.Event(plugin, action, reason, err)
	}
}

// LoadError is the error of one plugin of a configuration.
type LoadError struct {
	Index int // index of the plugin's spec
	Err   error
}

func (e *LoadError) Error() string { return e.Err.Error() }
func (e *LoadError) Unwrap() error { return e.Err }

// Load returns the stages of specs. It starts the processes that do not run yet. The error joins a
// *LoadError for each plugin that cannot be used. After an error, Load closes the processes and
// stages that it started for this configuration.
func (h *Host) Load(ctx context.Context, specs []Spec) (*Set, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h.mu.Lock()
	h.cancelLoad = cancel
	h.mu.Unlock()
	set := &Set{host: h}
	var errs []error
	for i, s := range specs {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		stage, err := h.stage(ctx, s)
		if err != nil {
			errs = append(errs, &LoadError{i, fmt.Errorf("%s: %w", s, err)})
			continue
		}
		set.stages = append(set.stages, stage)
	}
	if errs != nil {
		set.release()
		return nil, errors.Join(errs...)
	}
	return set, nil
}

// stage returns the stage of a spec: one that is in use already, or a new one.
func (h *Host) stage(ctx context.Context, spec Spec) (*Stage, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	if existing := h.stages[spec.stageKey()]; existing != nil && existing.hasSameAccess(spec) {
		existing.uses++
		h.mu.Unlock()
		return existing, nil
	}
	process := h.supervisors[spec.processKey()]
	stage := &Stage{spec: spec, process: process, uses: 1}
	if process != nil {
		// Register the stage before mu is unlocked. Otherwise the release of an old set could close
		// the process as unused.
		process.register(stage)
	}
	h.mu.Unlock()
	if process == nil {
		var err error
		if process, err = h.startSupervisor(ctx, spec); err != nil {
			return nil, err
		}
		stage.process = process
		process.register(stage)
		h.mu.Lock()
		h.supervisors[spec.processKey()] = process
		h.mu.Unlock()
	}
	if err := process.configure(ctx, stage); err != nil {
		if isLast := process.remove(stage); isLast {
			h.mu.Lock()
			delete(h.supervisors, spec.processKey())
			h.mu.Unlock()
			process.close()
		}
		return nil, err
	}
	h.mu.Lock()
	h.stages[spec.stageKey()] = stage
	h.mu.Unlock()
	return stage, nil
}

// Close ends all plugins and waits until their processes are gone. It cancels a Load that is
// running.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	if h.cancelLoad != nil {
		h.cancelLoad(errClosed)
	}
	h.mu.Unlock()
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	supervisors := h.supervisors
	h.supervisors, h.stages, h.replaced = nil, nil, nil
	h.mu.Unlock()
	for _, p := range supervisors {
		h.wg.Go(p.close)
	}
	h.wg.Wait()
	return nil
}
