package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pins"
	"gatekit/core/shared"
)

// loadSharedPins reads what the replicas approve of the servers of a configuration, and returns the
// servers of which it is not known. Without [shared], nothing is read.
func (g *gateway) loadSharedPins(ctx context.Context, c *config.Config) (unread map[string]bool) {
	if g.sharedPins == nil {
		return nil
	}
	unread = map[string]bool{}
	for _, s := range c.Servers {
		if _, err := g.sharedPins.Load(ctx, s.Name); err != nil {
			unread[s.Name] = true
			g.log.Error("server held back: it is not known what the replicas approve of it",
				"server", s.Name, "error", err)
		}
	}
	return unread
}

// watchSharedPins uses what other replicas approve, until ctx ends.
func (g *gateway) watchSharedPins(ctx context.Context) {
	if g.sharedPins == nil {
		return
	}
	tick := time.NewTicker(shared.WatchInterval)
	defer tick.Stop()
	failing, isUsed := false, true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c := g.activeConfig()
		if c.Pins == nil {
			continue
		}
		var names []string
		for _, s := range c.Servers {
			names = append(names, s.Name)
		}
		changed, err := g.sharedPins.Look(ctx, names)
		if err != nil && !failing && ctx.Err() == nil {
			g.log.Error("pins of other replicas not read; what was read stays in force", "error",
				err)
		}
		failing = err != nil
		if isUsed = isUsed && len(changed) == 0; isUsed {
			continue
		}
		if err := g.reloadPins(ctx); err != nil {
			g.log.Error("pins of other replicas not used", "error", err)
			continue
		}
		isUsed = true
	}
}

// recordSharedPins records what another replica has approved, before it is used.
func (g *gateway) recordSharedPins(server string, o *pins.Overlay, items []*pins.Item) error {
	reason := "approved at another replica: "
	if len(items) > 0 {
		reason += pinNames(items)
	} else {
		reason += "the launch " + display.EscapeLine(o.Launch(), maxApprovalReason)
	}
	return g.recording.events.RecordEvent(context.Background(), &mcp.Message{Server: server}, "pin",
		reason+"; shared pins "+o.Digest(), nil)
}

// describeSharedPins returns a text about what the replicas approve, for the records of starts and
// reloads.
func (g *gateway) describeSharedPins(c *config.Config) string {
	if g.sharedPins == nil {
		return ""
	}
	var text strings.Builder
	for _, s := range c.Servers {
		// Load could read what was not known when the server was held back. Then Look would not
		// report it as new, and the server would stay held back.
		if digest := g.sharedPins.Known(s.Name).Digest(); digest != "" {
			fmt.Fprintf(&text, ", server %s has shared pins %s", s.Name, digest)
		}
	}
	return text.String()
}

// sharedPinsOf is openSharedPins for the configuration at path.
func sharedPinsOf(cmd *cobra.Command, path string) (*pins.Shared, func(), error) {
	c, err := loadConfig(path)
	if errors.Is(err, errNoConfig) && path == "" {
		return nil, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return openSharedPins(cmd.Context(), c)
}

// openSharedPins returns what the replicas of a configuration approve of its servers, and a
// function that ends its use. Without [shared], it returns nil.
func openSharedPins(ctx context.Context, c *config.Config) (*pins.Shared, func(), error) {
	if c.Shared == nil {
		return nil, func() {}, nil
	}
	state, err := openState(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	s := &pins.Shared{Values: state}
	for _, server := range c.Servers {
		if _, err := s.Load(ctx, server.Name); err != nil {
			state.Close()
			return nil, nil, fmt.Errorf("read the shared pins of server %q: %w", server.Name, err)
		}
	}
	return s, state.Close, nil
}
