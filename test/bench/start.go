//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// measureStarts compares the start of a stdio server behind gatekit wrap with its start alone. In
// each round both are started once, and each round reverses the order of the round before.
func (p *plan) measureStarts(s setup, out report) error {
	if !slices.Contains(p.targets, "gatekit") {
		return nil
	}
	server := strings.Fields(p.server)
	if len(server) == 0 {
		path, err := os.Executable()
		if err != nil {
			return err
		}
		server = []string{path, "echo", "stdio"}
	}
	commands := [][]string{server, append([]string{s.gatekit, "wrap"}, server...)}
	state := "XDG_STATE_HOME=" + s.dir // wrap writes its audit log there
	out.startsHeader(strings.Join(server, " "), p.starts)
	c := make(comparison, len(commands))
	for round := -1; round < p.starts; round++ { // round -1 only fills the caches of the system
		for i := range commands {
			if round%2 != 0 {
				i = len(commands) - 1 - i
			}
			m, err := measureStart(commands[i], state)
			if err != nil {
				return err
			}
			if round >= 0 {
				c[i] = append(c[i], m)
			}
		}
	}
	out.startsRows(c)
	return nil
}

// measureStart starts a command and measures the time until it answers initialize. The client sends
// initialize at once, as clients do.
func measureStart(command []string, env string) (m measurement, err error) {
	start := time.Now()
	p, err := startProcess(command, env)
	if err != nil {
		return m, err
	}
	c := dialStdio(p.stdout, p.stdin, legacy, 1)
	_, err = call(c, 0, initialize)
	m = measurement{p50: time.Since(start), cpu: p.threadsCPU(), calls: 1}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, p.stderrText())
	}
	return m, errors.Join(err, p.stop())
}
