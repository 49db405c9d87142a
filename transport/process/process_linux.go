package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait waits for the end of the process, calls beforeReap, and reaps the process. Before the
// process is reaped, no other process can have its id or the id of its group.
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
