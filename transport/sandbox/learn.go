package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Needs holds what a process used that the level Strict does not grant by itself.
type Needs struct {
	Read, Write []string // files and folders
	Network     []string // addresses, such as 192.0.2.1:443 and unix:/run/x
	// Hosts holds the names whose addresses were asked for. Programs of Go ask in a way that is not
	// observed.
	Hosts   []string
	Secrets []string // those of Read that are known places of keys and passwords
}

// Table returns the needs as the lines of [server.NAME.sandbox].
func (n Needs) Table() string {
	var b strings.Builder
	b.WriteString("level = \"strict\"\n")
	list := func(key string, paths []string) {
		if len(paths) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s = [\n", key)
		for _, p := range paths {
			comment := ""
			if slices.Contains(n.Secrets, p) {
				comment = " # a known place of keys and passwords"
			}
			fmt.Fprintf(&b, "  %s,%s\n", quote(p), comment)
		}
		b.WriteString("]\n")
	}
	list("read", n.Read)
	list("write", n.Write)
	if len(n.Network) == 0 {
		b.WriteString("network = \"none\"\n")
		return b.String()
	}
	shown := n.Network[:min(len(n.Network), 10)]
	for _, address := range shown {
		fmt.Fprintf(&b, "# %s\n", strings.Trim(quote(address), `"`))
	}
	if more := len(n.Network) - len(shown); more > 0 {
		fmt.Fprintf(&b, "# and %d more addresses\n", more)
	}
	if hosts := n.hostsWithPorts(); len(hosts) > 0 {
		list("network", hosts)
	} else {
		b.WriteString("network = \"all\"\n")
	}
	return b.String()
}

// maxHosts is how many hosts a list may have.
const maxHosts = 256

// hostsWithPorts returns the hosts for the key network: each name with each port that was connected
// to, and addresses of this machine. It returns none if no name is known, or if there are too many.
func (n Needs) hostsWithPorts() []string {
	if len(n.Hosts) == 0 {
		return nil
	}
	var hosts, ports []string
	for _, address := range n.Network {
		i := strings.LastIndexByte(address, ':')
		port := address[i+1:]
		switch isLocal := strings.HasPrefix(address, "127.") || strings.HasPrefix(address,
			"[0:0:0:0:0:0:0:1]"); {
		case strings.HasPrefix(address, "unix:"), port == "53", port == "0":
		case isLocal:
			hosts = append(hosts, address)
		case !slices.Contains(ports, port):
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	for _, name := range slices.Sorted(slices.Values(n.Hosts)) {
		if name == "localhost" {
			continue
		}
		for _, port := range ports {
			if port == "443" {
				hosts = append(hosts, name)
			} else {
				hosts = append(hosts, name+":"+port)
			}
		}
	}
	if len(hosts) > maxHosts {
		return nil
	}
	return hosts
}

// maxSiblings is how many files of one folder are listed one by one.
const maxSiblings = 4

// summary returns the paths, sorted. A folder stands for what lies in it, also if more than
// maxSiblings of its files are needed.
func summary(paths map[string]bool) []string {
	siblings := map[string]int{}
	for p := range paths {
		siblings[filepath.Dir(p)]++
	}
	all := maps.Clone(paths)
	for folder, n := range siblings {
		// A folder near the root, such as a home folder, holds too much.
		if n > maxSiblings && strings.Count(folder, "/") > 2 {
			all[folder] = true
		}
	}
	var least []string
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if !slices.ContainsFunc(least, func(l string) bool { return isWithin(p, l) }) {
			least = append(least, p)
		}
	}
	return least
}
