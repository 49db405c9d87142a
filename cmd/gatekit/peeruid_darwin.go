package main

import "golang.org/x/sys/unix"

// peerUID returns the user id of the process at the other end of a unix socket.
func peerUID(fd int) (int, error) {
	peer, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}
