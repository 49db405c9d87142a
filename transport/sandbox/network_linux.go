//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// networkTimeout limits how long the setup of a network may take.
	networkTimeout = 10 * time.Second
	maxNetworkText = 1 << 10 // bytes of an error of the setup
	maxSockets     = 253     // the most that Linux sends at once
	loopbackIndex  = 1       // of lo, in every network namespace
	backlog        = 128     // connections that wait for the parent
)

// interfaceAddress is an address that lo gets beside those of loopback, since some programs look up
// no IPv4 addresses if they have no other address.
var interfaceAddress = []byte{198, 18, 0, 1}

// network is the network of a process with Settings.Ports. It is a namespace with no interface but
// lo. All addresses lead to lo, and there to the sockets that the parent serves.
type network struct {
	child *os.File // the end of the child of a pair of sockets
	ports string   // separated by commas

	mu     sync.Mutex // held while socket is used
	socket *os.File   // the other end of the pair
}

func newNetwork(ports []uint16) (*network, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	n := &network{socket: os.NewFile(uintptr(pair[0]), "socket"),
		child: os.NewFile(uintptr(pair[1]), "socket")}
	var texts []string
	for _, p := range ports {
		texts = append(texts, strconv.Itoa(int(p)))
	}
	n.ports = strings.Join(texts, ",")
	return n, nil
}

// release closes the end of the child, which the child has by now.
func (n *network) release() {
	if n != nil {
		n.child.Close()
	}
}

func (n *network) close() {
	if n != nil {
		n.child.Close()
		n.mu.Lock() // receive ends, since no process has the other end
		defer n.mu.Unlock()
		n.socket.Close()
	}
}

// setAttributes makes the process start in namespaces of its own.
func (n *network) setAttributes(attr *syscall.SysProcAttr) {
	if n == nil {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	attr.UidMappings, attr.GidMappings = ownID(os.Geteuid()), ownID(os.Getegid())
	if canMapAll() {
		// Files of other users stay accessible to root, and root may start programs as other users.
		attr.UidMappings, attr.GidMappings = allIDs("uid"), allIDs("gid")
		attr.GidMappingsEnableSetgroups = true
	}
	// A process of another user than root would lose its rights over the namespaces when this
	// program is executed. It loses them when it executes the confined program.
	attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
}

func ownID(id int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
}

// canMapAll reports whether this process may map the ids of all users into a namespace.
func canMapAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETFCAP
	return os.Geteuid() == 0 && unix.Capget(&header, &data[0]) == nil &&
		data[0].Effective&needed == needed
}

// allIDs returns a map of all ids of this process's own namespace to themselves.
func allIDs(kind string) []syscall.SysProcIDMap {
	text, err := os.ReadFile("/proc/self/" + kind + "_map")
	if err != nil {
		return ownID(0)
	}
	var ids []syscall.SysProcIDMap
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.Atoi(fields[0])
		size, err2 := strconv.Atoi(fields[2])
		if err1 == nil && err2 == nil {
			ids = append(ids, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
		}
	}
	return ids
}

// receive waits until the process has set up its network, and returns the sockets.
func (n *network) receive() (sockets []*os.File, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.socket.Close()
	timeout := unix.NsecToTimeval(int64(networkTimeout))
	socket := int(n.socket.Fd()) // -1 after close
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&timeout); err != nil {
		return nil, namespaceError("the process ended")
	}
	text, oob := make([]byte, maxNetworkText), make([]byte, unix.CmsgSpace(4*maxSockets))
	var size, oobSize int
	for {
		size, oobSize, _, _, err = unix.Recvmsg(socket, text, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EAGAIN) {
		err = fmt.Errorf("no answer within %s", networkTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the network of the server: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobSize])
	if err != nil {
		return nil, fmt.Errorf("set up the network of the server: %w", err)
	}
	for i := range messages {
		files, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, f := range files {
			sockets = append(sockets, os.NewFile(uintptr(f), "socket"))
		}
	}
	if len(sockets) == 0 {
		reason := string(text[:size])
		if reason == "" {
			reason = "the process ended"
		}
		return nil, namespaceError(reason)
	}
	return sockets, nil
}

// namespaceError returns the error for a system that does not let Gatekit make namespaces.
func namespaceError(reason string) error {
	program, err := os.Executable()
	if err != nil {
		program = "/usr/bin/gatekit"
	}
	return &UnsupportedError{fmt.Sprintf(`a list of hosts needs a network namespace: %s
hint: Ubuntu 24.04 and later refuse it to programs without a profile of AppArmor. Write these two
lines into /etc/apparmor.d/gatekit, and run: sudo apparmor_parser -r /etc/apparmor.d/gatekit
  abi <abi/4.0>,
  profile gatekit %s flags=(unconfined) { userns, }
On other systems, user.max_user_namespaces and kernel.unprivileged_userns_clone must not be 0. A
container needs the right to make user namespaces. Or use network = "all" or "none"`, reason,
		program)}
}

// startError returns the error for a process with a network of its own that could not be started.
func (n *network) startError(err error) error {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL} {
		if n != nil && errors.Is(err, e) {
			return namespaceError("make the namespace: " + e.Error())
		}
	}
	return err
}

// openNetwork sets up the network of this process, which is in a namespace of its own, and sends
// the sockets to the parent, over the socket with the number parent: two for DNS, and two for each
// port. Sockets of IPv6 are left out if the system has no IPv6.
func openNetwork(parent int, ports string) error {
	sockets, err := makeNetwork(strings.Split(ports, ","))
	text := []byte{0}
	if err != nil {
		text, sockets = []byte(err.Error()), nil
		text = text[:min(len(text), maxNetworkText)]
	}
	var rights []byte
	if len(sockets) > 0 {
		rights = unix.UnixRights(sockets...)
	}
	return errors.Join(err, unix.Sendmsg(parent, text, rights, nil, 0))
}

func makeNetwork(ports []string) (sockets []int, err error) {
	if err := startLoopback(); err != nil {
		return nil, fmt.Errorf("start the interface lo: %w", err)
	}
	if err := addLocalRoute(unix.AF_INET); err != nil {
		return nil, fmt.Errorf("add a route: %w", err)
	}
	hasIPv6 := addLocalRoute(unix.AF_INET6) == nil
	for i, p := range slices.Concat([]string{"53"}, ports) {
		port, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return nil, err
		}
		kind := unix.SOCK_STREAM
		if i == 0 {
			kind = unix.SOCK_DGRAM
		}
		socket, err := listen(unix.AF_INET, kind, int(port))
		if err != nil {
			return nil, fmt.Errorf("listen on port %d: %w", port, err)
		}
		sockets = append(sockets, socket)
		if !hasIPv6 {
			continue
		}
		if socket, err := listen(unix.AF_INET6, kind, int(port)); err == nil {
			sockets = append(sockets, socket)
		}
	}
	return sockets, nil
}

func startLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	message := []byte{unix.AF_INET, 32, 0, unix.RT_SCOPE_UNIVERSE}
	message = binary.NativeEndian.AppendUint32(message, loopbackIndex)
	message = appendAttribute(message, unix.IFA_LOCAL, interfaceAddress)
	message = appendAttribute(message, unix.IFA_ADDRESS, interfaceAddress)
	return askRouting(unix.RTM_NEWADDR, message)
}

// addLocalRoute makes all addresses of a family addresses of this namespace.
func addLocalRoute(family byte) error {
	message := []byte{family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST,
		unix.RTN_LOCAL, 0, 0, 0, 0}
	message = appendAttribute(message, unix.RTA_OIF,
		binary.NativeEndian.AppendUint32(nil, loopbackIndex))
	return askRouting(unix.RTM_NEWROUTE, message)
}

// appendAttribute appends an attribute whose value has a multiple of 4 bytes.
func appendAttribute(message []byte, kind uint16, value []byte) []byte {
	message = binary.NativeEndian.AppendUint16(message, uint16(unix.SizeofRtAttr+len(value)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	return append(message, value...)
}

// askRouting sends a message to the routing of the kernel, and returns its answer. See
// rtnetlink(7).
func askRouting(kind uint16, body []byte) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message,
		unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	message = append(message, make([]byte, 8)...) // number and sender
	if err := unix.Sendto(socket, append(message, body...), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, os.Getpagesize())
	size, _, err := unix.Recvfrom(socket, answer, 0)
	switch {
	case err != nil:
		return err
	case size < unix.SizeofNlMsghdr+4,
		binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR:
		return errors.New("the kernel gave no answer")
	}
	// The answer is a negative error number, or 0.
	if code := *(*int32)(unsafe.Pointer(&answer[unix.SizeofNlMsghdr])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// listen returns a socket that gets what is sent to a port of any address. A socket of DNS also
// gets the address, with each packet.
func listen(family, kind, port int) (int, error) {
	socket, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var address unix.Sockaddr = &unix.SockaddrInet4{Port: port}
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if family == unix.AF_INET6 {
		address = &unix.SockaddrInet6{Port: port}
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		err = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil && kind == unix.SOCK_DGRAM {
		err = unix.SetsockoptInt(socket, level, option, 1)
	}
	if err == nil {
		err = unix.Bind(socket, address)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(socket, backlog)
	}
	if err != nil {
		unix.Close(socket)
		return -1, err
	}
	return socket, nil
}
