package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

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
		NoNetwork: s.Sandbox.Network == "none", Memory: s.Sandbox.Memory,
		Files: s.Sandbox.Files}, BestEffort: s.Sandbox.BestEffort,
		Grant: func(r sandbox.Refusal) string {
			if c.File == "" { // gatekit wrap
				return fmt.Sprintf("add --%s %s to gatekit wrap", r.Key, shellQuote(r.Value))
			}
			return fmt.Sprintf("add to [server.%s.sandbox]: %s", s.Name, r)
		}}
	b.Hidden, b.Fixed = protectedFiles(c)
	return b
}

// protectedFiles returns the files that no server and no plugin may touch, and those that it may
// not write.
func protectedFiles(c *config.Config) (hidden, fixed []string) {
	hidden, fixed = c.ProtectedFiles()
	if state, err := stateFolder(); err == nil {
		hidden = append(hidden, state)
	}
	return hidden, fixed
}

// recordConfinement returns a function that calls dial, and records how the process is confined.
func (g *gateway) recordConfinement(server string, dial dialFunc) dialFunc {
	return func(ctx context.Context) (conn.PipeCloser, error) {
		pipe, err := dial(ctx)
		child, ok := pipe.(interface{ Confinement() (string, bool) })
		if err != nil || !ok {
			return pipe, err
		}
		switch description, confined := child.Confinement(); {
		case confined:
			g.recording.serverEvent(server, "confined", description, nil)
		case description != "":
			g.recording.serverEvent(server, "unconfined", description, nil)
		}
		return pipe, nil
	}
}

// sandbox returns the sandbox that the flags of wrap ask for. Without --sandbox, it is guard if the
// system can hold it. A network that a flag takes away must be held.
func (o *wrapOptions) sandbox() (*config.Sandbox, error) {
	b := &config.Sandbox{Level: o.sandboxLevel.value, Network: o.network.value}
	if b.Level == "" {
		b.Level, b.BestEffort = string(sandbox.Guard), b.Network != "none"
	}
	if b.Network == "" {
		b.Network = config.DefaultNetwork(b.Level)
	}
	if b.Level == string(sandbox.Off) && (len(o.read)+len(o.write) > 0 || b.Network == "none") {
		return nil, errors.New("--read, --write and --network need a sandbox\nhint: leave out " +
			"--sandbox off")
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

// shellQuote quotes a word for a shell, if it needs that.
func shellQuote(word string) string {
	if strings.Trim(word, shellSafe) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@:"
