//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// wait waits for the process and reaps it, and then calls afterReap. At that time other processes
// may already have the id of the group: only Linux can wait without reaping.
func wait(cmd *exec.Cmd, afterReap func()) error {
	err := cmd.Wait()
	afterReap()
	return err
}
