//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// sharedCases are the rules of the plugin limits that the part shared measures. A call that rates
// count takes one round trip to the store, and a call that counts as open takes two.
var sharedCases = []struct{ name, rules string }{
	{"rates", `{ per = "tool", rate = 1000000, burst = 1000000 }, ` +
		`{ per = "principal", rate = 1000000, burst = 1000000 }`},
	{"open calls", `{ per = "tool", concurrent = 4096 }`},
}

// measureShared compares calls that the plugin limits counts in a store that replicas share with
// calls that it counts in its own memory. The store is a redis-server on this machine.
func (p *plan) measureShared(s setup, out report) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		out.printLine("\nthe part shared is left out: %v (apt-get install redis-server)", err)
		return nil
	}
	store, address, err := startStore(s.dir)
	if err != nil {
		return err
	}
	s.route, s.era = httpHTTP, legacy
	out.sharedHeader()
	for _, c := range sharedCases {
		if err = p.measureSharedCase(s, out, c.name, c.rules, address); err != nil {
			break
		}
	}
	return errors.Join(err, store.stop())
}

func (p *plan) measureSharedCase(s setup, out report, name, rules, address string) error {
	plugin := "[[plugin]]\nname = \"limits\"\nuse = \"limits\"\ntimeout = \"30s\"\nconfig = { " +
		"calls = [" + rules + `], loop = { action = "off" }, result = { action = "off" } }` + "\n"
	store := fmt.Sprintf("state_key = %q\n[shared]\nurl = \"redis://%s\"\ntimeout = \"5s\"\n",
		strings.Repeat("k", 32), address)
	s.variants = []variant{{name: "local", tables: plugin},
		{name: "shared", tables: plugin, listenKeys: store}}
	for _, s.workers = range p.workers {
		targets, end, err := s.open("local", "shared")
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(targets, s.workers, func(t *target) message {
				return echoCall(t.tool, size)
			}, p.rounds, p.length)
			if err == nil {
				out.pairRow(name, s, size, c)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}

// startStore starts a redis-server, and returns when it listens.
func startStore(dir string) (store *process, address string, err error) {
	if address, err = freeAddress(); err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	store, err = startProcess([]string{"redis-server", "--bind", "127.0.0.1", "--port", port,
		"--dir", dir, "--save", "", "--appendonly", "yes", "--logfile", "/dev/null"})
	if err != nil {
		return nil, "", err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			return store, address, c.Close()
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("redis-server does not listen on %s after 10s", address)
			return nil, "", errors.Join(err, store.stop())
		}
	}
}
