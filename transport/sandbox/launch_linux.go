//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"encoding/binary"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"gatekit/transport/sandbox/launcher"
)

// launch returns the command of a process that confines itself and executes a program.
func (r *rules) launch(l Launch, program string, args []string) (string, string, []string,
	[]*os.File) {
	own := launcher.Settings{Ruleset: launcher.FirstFile + len(l.Files), Filter: encode(r.filter),
		Memory: r.grants.memory, Files: r.grants.files}
	argv := append([]string{cmp.Or(l.Name, program)}, args...)
	return Self, launcher.Name, launcher.Arguments(own, program, argv),
		append(slices.Clone(l.Files), r.file)
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
