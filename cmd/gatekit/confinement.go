package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/config"
	"gatekit/core/conn"
	"gatekit/core/hostlist"
	"gatekit/transport"
	"gatekit/transport/egress"
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
		NoNetwork: s.Sandbox.Network.Mode == config.NetworkNone, Memory: s.Sandbox.Memory,
		Files: s.Sandbox.Files}, BestEffort: s.Sandbox.BestEffort,
		Grant: func(r sandbox.Refusal) string {
			isWrap := c.File == ""
			isHost := r.Key == "network" && r.Value != "all"
			switch {
			case isWrap && isHost:
				return fmt.Sprintf("add --net %s to gatekit wrap", shellQuote(r.Value))
			case isWrap:
				return fmt.Sprintf("add --%s %s to gatekit wrap", r.Key, shellQuote(r.Value))
			case isHost && s.Sandbox.Network.Mode == config.NetworkHosts:
				return fmt.Sprintf("add %q to network of [server.%s.sandbox]", r.Value, s.Name)
			}
			return fmt.Sprintf("add to [server.%s.sandbox]: %s", s.Name, r)
		}}
	if s.Sandbox.Network.Mode == config.NetworkHosts {
		b.Egress = &transport.Egress{Hosts: s.Sandbox.Network.Hosts}
		for _, network := range s.Sandbox.Networks {
			// core/config has checked the networks.
			if prefix, err := netip.ParsePrefix(network); err == nil {
				b.Egress.Networks = append(b.Egress.Networks, prefix)
			}
		}
	}
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

// isProgram reports whether a server is a program, which a sandbox can confine.
func isProgram(s config.Server) bool { return s.Command != "" }

// checkSandboxes reports which servers no sandbox confines, and what the kernel can hold. A level
// that it cannot hold fails the check of the server.
func checkSandboxes(r *checkReport, c *config.Config) {
	if !slices.ContainsFunc(c.Servers, isProgram) {
		return
	}
	var free []string
	for _, s := range c.Servers {
		if isProgram(s) && (s.Sandbox == nil || s.Sandbox.Level == string(sandbox.Off)) {
			free = append(free, s.Name)
		}
	}
	result := "every program of a server is confined"
	if len(free) > 0 {
		result = fmt.Sprintf("not confined: %s (they may do everything that you may do)",
			strings.Join(free, ", "))
	}
	if held, err := sandbox.Support(); err != nil {
		result += "\n" + err.Error()
	} else {
		result += "\nthis kernel: " + held
	}
	r.print(checkResult{Check: "sandbox", Name: "sandbox", OK: true, Result: result,
		NotConfined: free})
}

// recordConfinement returns a function that calls dial, and records how the process is confined,
// and its connections if it may only connect to a list of hosts.
func (g *gateway) recordConfinement(server string, dial dialFunc) dialFunc {
	return func(ctx context.Context) (conn.PipeCloser, error) {
		pipe, err := dial(ctx)
		child, ok := pipe.(*transport.Child)
		if err != nil || !ok {
			return pipe, err
		}
		child.RecordEgress(func(e egress.Event) error { return g.recordEgress(server, e) })
		description, confined := child.Confinement()
		g.confined.set(server, description, confined)
		switch {
		case confined:
			g.recording.serverEvent(server, "confined", description, nil)
		case description != "":
			g.recording.serverEvent(server, "unconfined", description, nil)
		}
		return pipe, nil
	}
}

// recordEgress records an event of the network of a confined server.
func (g *gateway) recordEgress(server string, e egress.Event) error {
	host := e.Host
	if e.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(e.Port)))
	}
	switch e.Kind {
	case egress.Connected:
		return g.recording.serverEvent(server, "host_connected",
			fmt.Sprintf("%s, address %s", host, e.Address), nil)
	case egress.Closed:
		text := fmt.Sprintf("%s, address %s, %d bytes sent, %d bytes received", host, e.Address,
			e.Sent, e.Received)
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		return g.recording.serverEvent(server, "host_closed", text, nil)
	}
	return g.recording.serverEvent(server, "host_refused", strings.TrimPrefix(host+": "+e.Reason,
		": "), nil)
}

// logEgress makes the connections of a confined server possible while there is no audit log, as in
// gatekit check. They are logged.
func logEgress(dial dialFunc, log *slog.Logger) dialFunc {
	return func(ctx context.Context) (conn.PipeCloser, error) {
		pipe, err := dial(ctx)
		if child, ok := pipe.(*transport.Child); ok && err == nil {
			child.RecordEgress(func(e egress.Event) error {
				log.Debug("connection of a confined server", "host", e.Host, "port", e.Port,
					"refused", e.Kind == egress.Refused, "reason", e.Reason)
				return nil
			})
		}
		return pipe, err
	}
}

// sandbox returns the sandbox that the flags of wrap ask for. Without --sandbox, it is guard if the
// system can hold it. A network that a flag takes away, and limits, must be held.
func (o *wrapOptions) sandbox() (*config.Sandbox, error) {
	b := &config.Sandbox{Level: o.sandboxLevel.value,
		Network: config.Network{Mode: o.network.value}, Memory: int(o.memory), Files: o.files}
	if len(o.hosts) > 0 {
		if b.Network.Mode != "" {
			return nil, errors.New("--net lists the only hosts of a server, and --network says " +
				"that it has all or none\nhint: leave out one of them")
		}
		b.Network.Mode = config.NetworkHosts
		for _, text := range o.hosts {
			host, err := hostlist.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("--net: %w", err)
			}
			b.Network.Hosts = append(b.Network.Hosts, host)
		}
		if err := b.Network.Hosts.Check(); err != nil {
			return nil, fmt.Errorf("--net: %w", err)
		}
	}
	isLimited := b.Network.Mode == config.NetworkNone || b.Network.Mode == config.NetworkHosts ||
		b.Memory != 0 || b.Files != 0
	if b.Level == "" {
		b.Level, b.BestEffort = string(sandbox.Guard), !isLimited
	}
	switch {
	case b.Memory != 0 && b.Memory < config.MinMemory:
		return nil, fmt.Errorf("--memory must be at least %d MiB", config.MinMemory>>20)
	case b.Files != 0 && b.Files < config.MinFiles:
		return nil, fmt.Errorf("--files must be at least %d", config.MinFiles)
	}
	if b.Network.Mode == "" {
		b.Network.Mode = config.DefaultNetwork(b.Level)
	}
	if b.Level == string(sandbox.Off) && (len(o.read)+len(o.write) > 0 || isLimited) {
		return nil, errors.New("--read, --write, --net, --network, --memory and --files need a " +
			"sandbox\nhint: leave out --sandbox off")
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

// byteCount is the value of a flag: a number of bytes, such as 1073741824 or 1GiB.
type byteCount int

func (b *byteCount) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.Itoa(int(*b))
}

// Set implements pflag.Value.
func (b *byteCount) Set(text string) error {
	number, shift := text, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if before, ok := strings.CutSuffix(text, unit); ok {
			number, shift = before, bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return errors.New("must be a number of bytes, such as 1073741824, 512MiB or 1GiB")
	}
	*b = byteCount(n << shift)
	return nil
}

// Type implements pflag.Value.
func (*byteCount) Type() string { return "size" }
