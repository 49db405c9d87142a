//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running backend or proxy. The client, the proxy and the backend are always separate
// processes.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File // a temporary file, already removed from its folder
}

// startSelf starts this binary in a role (see runRole).
func startSelf(role ...string) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(append([]string{path}, role...))
}

// startProcess starts a command. The variables env, each in the form KEY=VALUE, are added to its
// environment.
func startProcess(command []string, env ...string) (*process, error) {
	stderr, err := os.CreateTemp("", "bench-stderr-")
	if err != nil {
		return nil, err
	}
	os.Remove(stderr.Name())
	p := &process{cmd: exec.Command(command[0], command[1:]...), stderr: stderr}
	p.cmd.Stderr = stderr
	p.cmd.Env = append(os.Environ(), env...)
	// The kernel ends the process when this one is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, p.stdout, err = startPiped(p.cmd); err != nil {
		return nil, fmt.Errorf("start %q: %w", command, err)
	}
	return p, nil
}

// startPiped starts cmd and returns pipes to its stdin and stdout.
func startPiped(cmd *exec.Cmd) (stdin, stdout *os.File, err error) {
	childStdin, stdin, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, childStdout, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	enlargePipe(stdin)
	enlargePipe(stdout)
	cmd.Stdin, cmd.Stdout = childStdin, childStdout
	err = cmd.Start()
	return stdin, stdout, errors.Join(err, childStdin.Close(), childStdout.Close())
}

// firstLine returns the first line of the process's output, which is the address that the process
// listens on.
func (p *process) firstLine() (string, error) {
	s, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s printed no address: %w\n%s", p.cmd, err, p.stderrText())
	}
	return strings.TrimSpace(s), nil
}

// stop ends the process. It closes the stdin of the process, and sends signals if the process does
// not end in time.
func (p *process) stop() error {
	p.stdin.Close()
	timer := time.AfterFunc(time.Second, func() { p.cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	killer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer killer.Stop()
	err := p.cmd.Wait()
	defer p.stderr.Close()
	p.stdout.Close()
	if err != nil && strings.Contains(p.stderrText(), "panic") {
		return fmt.Errorf("%s: %w\n%s", p.cmd, err, p.stderrText())
	}
	return nil
}

// stderrText returns the first 8 KiB that the process has written to stderr.
func (p *process) stderrText() string {
	b := make([]byte, 8<<10)
	n, _ := p.stderr.ReadAt(b, 0)
	return string(b[:n])
}

// cpu returns the processor time of the process without its children. The kernel counts in steps of
// 10 ms.
func (p *process) cpu() time.Duration { return cpuOfPID(strconv.Itoa(p.cmd.Process.Pid)) }

// threadsCPU returns the processor time of the process's running threads, without its children. It
// is more precise than cpu.
func (p *process) threadsCPU() (total time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, file := range files {
		b, _ := os.ReadFile(file) // a thread may have ended
		if fields := strings.Fields(string(b)); len(fields) > 0 {
			nanoseconds, _ := strconv.ParseInt(fields[0], 10, 64)
			total += time.Duration(nanoseconds)
		}
	}
	return total
}

// childrenCPU returns the processor time of the process's children, which are plugins and stdio
// servers.
func (p *process) childrenCPU() (total time.Duration) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	for _, list := range lists {
		pids, _ := os.ReadFile(list) // a thread may have ended
		for pid := range strings.FieldsSeq(string(pids)) {
			total += cpuOfPID(pid)
		}
	}
	return total
}

func cpuOfPID(pid string) time.Duration {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident returns the resident memory of the process in bytes: its current size and its peak.
func (p *process) resident() (now, peak int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			now, _ = strconv.Atoi(fields[1])
		case "VmHWM:":
			peak, _ = strconv.Atoi(fields[1])
		}
	}
	return now << 10, peak << 10
}
