package transport

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// childBuffer is smaller than pipeBuffer: the system grants each user 64 MiB of pipes in all (pipe-user-pages-soft) and gives all of that user's further pipes two pages
// only, and there may be many children. Our ends do not block, so that little is lost.
const childBuffer = 256 << 10

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait waits for the process and reaps it. It calls beforeReap when the process has ended, but still holds its number, and thereby that of its group.
func wait(cmd *exec.Cmd, beforeReap func()) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	beforeReap()
	return cmd.Wait()
}
