//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"gatekit/transport/sandbox/launcher"
)

// launch returns the command of a process that confines itself and executes a program.
func (r *rules) launch(program string, args []string) (string, string, []string, []*os.File) {
	own := launcher.Settings{Filter: encode(r.filter), Memory: r.grants.memory,
		Files: r.grants.files}
	// /proc/self/exe is this program, even if the file at its path was replaced.
	return "/proc/self/exe", launcher.Name, launcher.Arguments(own, program, args),
		[]*os.File{r.file}
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
