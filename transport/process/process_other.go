//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// wait waits for the process and reaps it. afterReap is called too late to be sure that the group's
// number is still its own; there is no better way everywhere.
func wait(cmd *exec.Cmd, afterReap func()) error {
	err := cmd.Wait()
	afterReap()
	return err
}
