package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait waits for the process and reaps it. Between the two it calls beforeReap. At that time no
// other process can have the id of the process or of its group.
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
