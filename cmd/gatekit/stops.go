package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

// stopWait is how long a stop waits for the writes that had begun before it. A peer that does not
// read can hold up a write for longer; the record then says so.
const stopWait = 3 * time.Second

// stopFolder returns the folder of the stops of one configuration. All processes of gatekit wrap
// have one folder: each has a log of its own, and a client may start another one at any time.
func stopFolder(c *config.Config) (string, error) {
	dir, err := stateFolder()
	if err != nil {
		return "", fmt.Errorf("find the folder of stops: %w", err)
	}
	if c == nil || c.File == "" {
		return filepath.Join(dir, "stopped", "wrap"), nil
	}
	sum := sha256.Sum256([]byte(realPath(c.Audit.File)))
	return filepath.Join(dir, "stopped", hex.EncodeToString(sum[:16])), nil
}

// openStops returns the stops in force for a configuration. Without a state folder, no command can
// reach this process, and a stop by a file or a signal ends with the process.
func openStops(c *config.Config, log *slog.Logger) *stop.Keeper {
	folder, err := stopFolder(c)
	if err != nil {
		log.Warn("no state folder: a stop does not survive a restart", "error", err)
	}
	k := stop.Open(folder)
	if fault := k.Fault(); fault != nil {
		log.Error("everything is stopped: the stops in force cannot be read", "folder", folder,
			"error", fault, "hint", "gatekit resume --all")
	} else if all := k.List(); len(all) > 0 {
		log.Warn("traffic is stopped", "stops", len(all), "first", all[0].Scope.String(),
			"by", all[0].By, "reason", all[0].Reason, "hint", "gatekit stop status")
	}
	return k
}

// describeStops returns the stops in force for the record of a start.
func describeStops(stops []stop.Stop) string {
	if len(stops) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in force", plural(len(stops), "stop"))
}

// announceStops records that everything is stopped because the stops cannot be read. If the file of
// [stop] exists, it stops everything before the first client connects.
func (g *gateway) announceStops() error {
	fault := g.stops.Fault()
	if fault == nil {
		if g.stopFileExists() && !g.stopsEverything() {
			g.stopByFile()
		}
		return nil
	}
	if err := g.recording.event(context.Background(), "stop_traffic",
		"everything: the stops in force cannot be read", fault); err != nil {
		return fmt.Errorf("record the stop: %w", err)
	}
	return nil
}

// recordStop records that a stop begins or ends.
func recordStop(events *pipeline.Pipeline, scope stop.Scope, action, reason string) error {
	m := &mcp.Message{Server: scope.Server, Session: scope.Session}
	if scope.Principal != "" {
		m.Principal = identity.FromID(scope.Principal)
	}
	return events.RecordEvent(context.Background(), m, action, reason, nil)
}

// stopTraffic puts a stop in force. When it has written the record of the stop, no message that the
// stop covers moves any more. Then it ends the calls in flight, and returns their number. If the
// stop is invalid, nothing changes. After any other error, the stop is in force all the same.
func (g *gateway) stopTraffic(s stop.Stop) (ended int, err error) {
	g.stopping.Lock()
	defer g.stopping.Unlock()
	drained, err := g.stops.Stop(s)
	if drained == nil {
		return 0, err
	}
	if err != nil {
		err = fmt.Errorf("the stop is in force, but not on disk, so a restart ends it: %w", err)
	}
	err = errors.Join(err, g.sharedStops.publish(context.Background(), s))
	ended, enforceErr := g.enforceStop(s, drained)
	return ended, errors.Join(err, enforceErr)
}

// enforceStop records a stop that is in force, and ends the calls that it covers.
func (g *gateway) enforceStop(s stop.Stop, drained <-chan struct{}) (ended int, err error) {
	reason := s.Scope.String() + ", by " + s.By + ": " + s.Reason
	select {
	case <-drained:
	case <-time.After(stopWait):
		reason += fmt.Sprintf(" (a write that began before has not ended within %v: its receiver "+
			"does not read)", stopWait)
	}
	if recordErr := recordStop(g.recording.events, s.Scope, "stop_traffic",
		reason); recordErr != nil {
		err = fmt.Errorf("the stop is in force, but not recorded: %w", recordErr)
	}
	ended = g.proxy.EndStopped(s)
	g.log.Warn("traffic stopped", "scope", s.Scope.String(), "by", s.By, "reason", s.Reason,
		"calls ended", ended, "hint", "gatekit resume ends the stop")
	return ended, err
}

// resumeRequest says which stops end.
type resumeRequest struct {
	stop.Scope
	All bool   `json:"all,omitempty"`
	By  string `json:"-"`
}

// end records the end of stops, tells the other replicas with withdraw, and ends the stops. If one
// of these fails, they stay in force, which is recorded.
func (r *resumeRequest) end(k *stop.Keeper, events *pipeline.Pipeline,
	withdraw func([]stop.Stop) error) (ended []stop.Stop, err error) {
	err = k.Resume(r.Scope, r.All, func(stops []stop.Stop) error {
		ended = stops
		if err := recordResume(events, stops, r.By); err != nil {
			return err
		}
		return withdraw(stops)
	})
	if err != nil && ended != nil {
		err = errors.Join(err, events.RecordEvent(context.Background(), nil, "stop_traffic",
			"the stop stays in force", err))
	}
	return ended, err
}

// resumeTraffic ends stops. Only the control socket and the admin endpoint call it.
func (g *gateway) resumeTraffic(r resumeRequest) error {
	g.stopping.Lock()
	defer g.stopping.Unlock()
	if (r.All || r.Scope == (stop.Scope{})) && g.stopFileExists() {
		return fmt.Errorf("the file %s would stop everything again\nhint: remove it first",
			g.stopFile)
	}
	ended, err := r.end(g.stops, g.recording.events, func(stops []stop.Stop) error {
		return g.sharedStops.withdraw(context.Background(), stops)
	})
	if err != nil {
		return err
	}
	for _, s := range ended {
		g.proxy.Resumed(s)
		g.log.Info("traffic resumed", "scope", s.Scope.String(), "by", r.By)
	}
	return nil
}

// recordResume records that stops end.
func recordResume(events *pipeline.Pipeline, stops []stop.Stop, by string) error {
	for _, s := range stops {
		if err := recordStop(events, s.Scope, "resume_traffic", fmt.Sprintf("%s, by %s; stopped "+
			"%s by %s: %s", s.Scope, by, s.At.UTC().Format(time.RFC3339), s.By,
			s.Reason)); err != nil {
			return err
		}
	}
	return nil
}

// stopOfServer returns an error if everything or the server is stopped, for every client.
func (g *gateway) stopOfServer(server string) error {
	s := g.stops.Gate.Refuses(&mcp.Message{Server: server})
	if s == nil {
		return nil
	}
	return fmt.Errorf("stopped by %s: %s", s.By, s.Reason)
}

// stopHealth returns the result for /readyz. Gatekit is not ready while everything is stopped.
func (g *gateway) stopHealth() healthResult {
	stops := g.stops.List()
	r := healthResult{name: "stop", state: "nothing is stopped"}
	var scopes []string
	for _, s := range stops {
		if s.Scope == (stop.Scope{}) {
			r.err = fmt.Errorf("everything is stopped by %s: %s", s.By, s.Reason)
		}
		scopes = append(scopes, s.Scope.String())
	}
	if len(scopes) > 0 {
		r.state = "stopped: " + display.Clip(strings.Join(scopes, "; "), 500)
	}
	return r
}

// stopTraffic stops traffic for a command.
func (s *controlServer) stopTraffic(x *stop.Stop) (int, error) {
	if x == nil {
		return 0, errors.New("the request has no stop")
	}
	x.By = fmt.Sprintf("user id %d with gatekit stop", os.Geteuid())
	return s.gateway.stopTraffic(*x)
}

// resumeTraffic ends stops for a command.
func (s *controlServer) resumeTraffic(r *resumeRequest) error {
	if r == nil {
		return errors.New("the request names no stop")
	}
	r.By = fmt.Sprintf("user id %d with gatekit resume", os.Geteuid())
	return s.gateway.resumeTraffic(*r)
}

// stopFileInterval is the time between two looks at the file of [stop].
const stopFileInterval = time.Second

// watchStopTriggers stops everything when the file exists, and when a signal comes. Neither the
// removal of the file nor a signal ends a stop.
func (g *gateway) watchStopTriggers(ctx context.Context, signals <-chan os.Signal) {
	var look <-chan time.Time
	if g.stopFile != "" {
		t := time.NewTicker(stopFileInterval)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-signals:
			g.stopEverything("the signal SIGUSR1", "a process sent the signal")
		case <-look:
			if g.stopFileExists() && !g.stopsEverything() {
				g.stopByFile()
			}
		case <-ctx.Done():
			return
		}
	}
}

// stopFileExists reports whether the file of [stop] exists. A file that cannot be looked at may
// exist.
func (g *gateway) stopFileExists() bool {
	if g.stopFile == "" {
		return false
	}
	_, err := os.Lstat(g.stopFile)
	return !errors.Is(err, fs.ErrNotExist)
}

func (g *gateway) stopByFile() {
	g.stopEverything("the file "+display.EscapeLine(g.stopFile, 400), reasonIn(g.stopFile))
}

func (g *gateway) stopEverything(by, reason string) {
	if _, err := g.stopTraffic(stop.Stop{At: time.Now(), By: by, Reason: reason}); err != nil {
		g.log.Error("stop incomplete", "error", err)
	}
}

func (g *gateway) stopsEverything() bool {
	return g.stops.Gate.Refuses(&mcp.Message{}) != nil
}

// reasonIn returns the first line of a file, or a text if there is none.
func reasonIn(file string) string {
	const none = "the file exists"
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() {
		return none
	}
	f, err := os.Open(file)
	if err != nil {
		return none
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 300))
	line, _, _ := strings.Cut(strings.ToValidUTF8(string(b), ""), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return none
	}
	return display.EscapeLine(line, 300)
}
