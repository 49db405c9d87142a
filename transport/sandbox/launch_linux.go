//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"gatekit/transport/sandbox/launcher"
)

// networkLauncher is the argv[0] of a process that sets up its network, and then becomes a process
// of package launcher. It can start later than that package: it confines nothing.
const networkLauncher = "gatekit-sandbox-network"

func init() {
	if len(os.Args) > 3 && os.Args[0] == networkLauncher {
		err := becomeLauncher(os.Args[1], os.Args[2], os.Args[3:])
		fmt.Fprintf(os.Stderr, "gatekit: set up the network of the server: %v\n", err)
		os.Exit(126)
	}
}

// becomeLauncher sets up the network and executes the launcher. It returns only if it fails.
func becomeLauncher(socket, ports string, args []string) error {
	number, err := strconv.Atoi(socket)
	if err != nil {
		return err
	}
	if err := openNetwork(number, ports); err != nil {
		return err
	}
	return unix.Exec(Self, append([]string{launcher.Name}, args...), os.Environ())
}

// launch returns the command of a process that confines itself and executes a program. It begins to
// add the rules.
func (r *rules) launch(l Launch, program string, args []string) (string, string, []string,
	[]*os.File) {
	r.start.Do(func() {
		r.added = make(chan struct{})
		go r.addAll()
	})
	ruleset := launcher.FirstFile + len(l.Files)
	own := launcher.Settings{Ruleset: ruleset, Filter: encode(r.filter), Memory: r.grants.memory,
		Files: r.grants.files}
	argv := append([]string{cmp.Or(l.Name, program)}, args...)
	launchArgs := launcher.Arguments(own, program, argv)
	files := append(slices.Clone(l.Files), r.file, r.ready)
	if r.network == nil {
		return Self, launcher.Name, launchArgs, files
	}
	// The launcher closes the socket with the ruleset.
	return Self, networkLauncher, append([]string{strconv.Itoa(ruleset + 2), r.network.ports},
		launchArgs...), append(files, r.network.child)
}

// encode returns the bytes of an array of struct sock_filter.
func encode(filter []unix.SockFilter) []byte {
	var b []byte
	for _, f := range filter {
		b = binary.LittleEndian.AppendUint16(b, f.Code)
		b = append(b, f.Jt, f.Jf)
		b = binary.LittleEndian.AppendUint32(b, f.K)
	}
	return b
}
