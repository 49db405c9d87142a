package main

import (
	"context"
	"errors"
	"path/filepath"

	"gatekit/core/config"
	"gatekit/core/conn"
	"gatekit/transport"
	"gatekit/transport/sandbox"
)

// confinement returns what the program of a server may do, or nil if the configuration does not
// say. It never includes Gatekit's own files.
func confinement(s config.Server, c *config.Config) *transport.Sandbox {
	if s.Sandbox == nil {
		return nil
	}
	b := &transport.Sandbox{Settings: sandbox.Settings{Level: sandbox.Level(s.Sandbox.Level),
		Read: s.Sandbox.Read, Write: s.Sandbox.Write, Run: s.Sandbox.Run,
		NoNetwork: s.Sandbox.Network == "none"}}
	b.Hidden, b.Fixed = c.ProtectedFiles()
	if state, err := stateFolder(); err == nil {
		b.Hidden = append(b.Hidden, state)
	}
	return b
}

// recordConfinement returns a function that calls dial, and records how the process is confined.
func (g *gateway) recordConfinement(server string, dial dialFunc) dialFunc {
	return func(ctx context.Context) (conn.PipeCloser, error) {
		pipe, err := dial(ctx)
		child, ok := pipe.(interface{ Confinement() string })
		if err == nil && ok && child.Confinement() != "" {
			g.recording.serverEvent(server, "confined", child.Confinement(), nil)
		}
		return pipe, err
	}
}

// sandbox returns the sandbox that the flags of wrap ask for, or nil.
func (o *wrapOptions) sandbox() (*config.Sandbox, error) {
	level, network := o.sandboxLevel.value, o.network.value
	if level == "" {
		if len(o.read)+len(o.write) > 0 || network != "" {
			return nil, errors.New("--read, --write and --network need a sandbox\nhint: add " +
				"--sandbox guard or --sandbox strict")
		}
		return nil, nil
	}
	b := &config.Sandbox{Level: level, Network: network}
	if network == "" {
		b.Network = config.DefaultNetwork(level)
	}
	for _, list := range []struct{ paths, to *[]string }{{&o.read, &b.Read}, {&o.write, &b.Write}} {
		for _, p := range *list.paths {
			abs, err := filepath.Abs(p)
			if err != nil {
				return nil, err
			}
			*list.to = append(*list.to, abs)
		}
	}
	return b, nil
}
