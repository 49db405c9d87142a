//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// wait waits for the process and reaps it. It calls afterReap when the id of the group may be used
// by others already: only Linux has a way to call it before.
func wait(cmd *exec.Cmd, afterReap func()) error {
	err := cmd.Wait()
	afterReap()
	return err
}
