package main

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
	"gatekit/core/pins"
	"gatekit/core/pipeline"
	"gatekit/transport/console"
)

// Bounds of what is remembered about lists of tools.
const (
	maxListBytes = 1 << 20 // of one page
	maxListPages = 8       // of one server; the oldest are forgotten first
)

// listedTools remembers the last lists of tools that each server sent and the stages passed, for
// the console. It keeps the bytes, and parses them only when somebody looks.
type listedTools struct {
	pipeline.Recorder

	mu    sync.Mutex
	pages map[string][]listedPage // by server, oldest first
}

type listedPage struct {
	body []byte
	at   time.Time
}

// Record implements pipeline.Recorder.
func (l *listedTools) Record(ctx context.Context, o pipeline.Outcome) (uint64, error) {
	seq, err := l.Recorder.Record(ctx, o)
	if err == nil && o.Before != nil && o.Before.Method == "tools/list" && o.After != nil &&
		o.After.Kind == mcp.Response {
		l.remember(o.Before.Server, o.After.Body())
	}
	return seq, err
}

func (l *listedTools) remember(server string, body []byte) {
	if server == "" || len(body) > maxListBytes {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	pages := l.pages[server]
	for i := range pages {
		if bytes.Equal(pages[i].body, body) {
			pages[i].at = time.Now()
			return
		}
	}
	if len(pages) == maxListPages {
		pages = append(pages[:0:0], pages[1:]...)
	}
	if l.pages == nil {
		l.pages = map[string][]listedPage{}
	}
	l.pages[server] = append(pages, listedPage{bytes.Clone(body), time.Now()})
}

// listedTool is a tool in a list.
type listedTool struct {
	annotations console.Annotations
	at          time.Time
}

// tools returns the tools in the lists of the last 24 hours.
func (l *listedTools) tools() map[toolKey]listedTool {
	all := map[toolKey]listedTool{}
	if l == nil {
		return all
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for server, pages := range l.pages {
		for _, page := range pages {
			if time.Since(page.at) > activityPeriod {
				continue
			}
			var list struct {
				Tools []struct {
					Name        string         `json:"name"`
					Annotations jsontext.Value `json:"annotations"`
				} `json:"tools"`
			}
			if json.Unmarshal(page.body, &list) != nil {
				continue
			}
			for _, tool := range list.Tools {
				key := toolKey{server, tool.Name}
				if _, known := all[key]; known || len(all) < activityNames {
					all[key] = listedTool{annotationsOf(tool.Annotations), page.at}
				}
			}
		}
	}
	return all
}

// annotationsOf returns the promises of a tool. What is not a boolean is no promise.
func annotationsOf(raw []byte) (a console.Annotations) {
	var members map[string]jsontext.Value
	if len(raw) == 0 || json.Unmarshal(raw, &members) != nil {
		return a
	}
	a.ReadOnly = string(members["readOnlyHint"]) == "true"
	a.NotDestructive = string(members["destructiveHint"]) == "false"
	a.Idempotent = string(members["idempotentHint"]) == "true"
	a.ClosedWorld = string(members["openWorldHint"]) == "false"
	return a
}

// addPins adds the tools in the lock file, and those that wait for an approval.
func (t *consoleTools) addPins(add func(toolKey) *console.ToolState) error {
	c := t.gateway.activeConfig()
	if c.Pins == nil {
		return nil
	}
	w, err := waitingOf(c, t.gateway.sharedPins)
	if err != nil {
		return err
	}
	lock, err := w.lock()
	if err != nil {
		return err
	}
	waiting, err := w.store.Read()
	if err != nil {
		return err
	}
	for _, s := range c.Servers {
		approved := lock.Servers[s.Name]
		if approved != nil {
			for name, item := range approved.Tools {
				state := add(toolKey{s.Name, name})
				state.Pin = console.PinApproved
				if state.Listed.IsZero() {
					state.Annotations = pinnedAnnotations(item)
				}
			}
		}
		kept := waiting.Servers[s.Name]
		if kept == nil {
			continue
		}
		for i := range kept.Items {
			seen := &kept.Items[i]
			if seen.Kind != pins.Tool {
				continue
			}
			if approved != nil {
				if old := approved.Item(pins.Tool, seen.Name); old != nil &&
					old.Digest() == seen.Digest {
					continue
				}
			}
			state := add(toolKey{s.Name, seen.Name})
			if state.Pin = console.PinWaiting; seen.Rejected {
				state.Pin = console.PinRejected
			}
		}
	}
	return nil
}

func pinnedAnnotations(i *pins.Item) console.Annotations {
	var tool struct {
		Annotations jsontext.Value `json:"annotations"`
	}
	if json.Unmarshal(i.Definition(), &tool) != nil {
		return console.Annotations{}
	}
	return annotationsOf(tool.Annotations)
}
