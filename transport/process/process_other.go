//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// wait waits for the end of the process, reaps it, and calls afterReap. By then, other processes
// may already have the id of the group. Only Linux can wait without reaping.
func wait(cmd *exec.Cmd, afterReap func()) error {
	err := cmd.Wait()
	afterReap()
	return err
}
