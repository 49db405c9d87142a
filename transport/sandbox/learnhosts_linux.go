//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sendCalls are the system calls with which C libraries send queries of DNS. sendmsg is not one of
// them: with it, the process sends the listener of its filter.
var sendCalls = []int{unix.SYS_SENDTO, unix.SYS_SENDMMSG}

const (
	maxQuery      = 512 // bytes of a query that are read
	maxQueries    = 4   // queries of one system call that are read
	messageHeader = 64  // bytes of struct mmsghdr
)

// observeSend notes the names in queries of DNS.
func (o *Observer) observeSend(call *notification) {
	if int(call.number) == unix.SYS_SENDTO {
		o.noteQuery(readMemory(call.pid, call.args[1], min(call.args[2], maxQuery)))
		return
	}
	for i := range min(call.args[2], maxQueries) {
		header := readMemory(call.pid, call.args[1]+i*messageHeader, messageHeader)
		if len(header) < messageHeader || binary.NativeEndian.Uint64(header[24:]) == 0 {
			return
		}
		// The name and the header of a query are in one piece.
		piece := readMemory(call.pid, binary.NativeEndian.Uint64(header[16:]), 16)
		if len(piece) < 16 {
			return
		}
		o.noteQuery(readMemory(call.pid, binary.NativeEndian.Uint64(piece),
			min(binary.NativeEndian.Uint64(piece[8:]), maxQuery)))
	}
}

func (o *Observer) noteQuery(b []byte) {
	name := queryName(b)
	if name != "" && len(o.needs.Hosts) < maxLearnt && !slices.Contains(o.needs.Hosts, name) {
		o.needs.Hosts = append(o.needs.Hosts, name)
	}
}

// queryName returns the name in a query of DNS for an address, or "" if b is none.
func queryName(b []byte) string {
	const header = 12
	if len(b) < header || b[2]&0xf8 != 0 || // an answer, or not a query
		binary.BigEndian.Uint16(b[4:]) != 1 || binary.BigEndian.Uint32(b[6:]) != 0 {
		return ""
	}
	var labels []string
	rest := b[header:]
	for len(rest) > 0 && rest[0] != 0 {
		size := int(rest[0])
		if size > 63 || len(rest) < 1+size {
			return ""
		}
		label := strings.ToLower(string(rest[1 : 1+size]))
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
		labels, rest = append(labels, label), rest[1+size:]
	}
	if len(rest) < 5 || len(labels) == 0 || binary.BigEndian.Uint16(rest[3:]) != 1 { // IN
		return ""
	}
	switch binary.BigEndian.Uint16(rest[1:]) {
	case 1, 28: // A, AAAA
		return strings.Join(labels, ".")
	}
	return ""
}
