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

// process is a backend or a proxy. Driver, proxy and backend are never in one process.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File // already unlinked
}

// self runs this binary in one of its roles.
func self(role ...string) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(append([]string{path}, role...))
}

func start(command []string) (*process, error) {
	stderr, err := os.CreateTemp("", "bench-stderr-")
	if err != nil {
		return nil, err
	}
	os.Remove(stderr.Name())
	p := &process{cmd: exec.Command(command[0], command[1:]...), stderr: stderr}
	p.cmd.Stderr = stderr
	// none outlives a driver that is killed
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, p.stdout, err = startPiped(p.cmd); err != nil {
		return nil, fmt.Errorf("start %q: %w", command, err)
	}
	return p, nil
}

// startPiped starts cmd and answers our ends of its stdin and stdout.
func startPiped(cmd *exec.Cmd) (stdin, stdout *os.File, err error) {
	theirIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, theirOut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	enlarge(stdin)
	enlarge(stdout)
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	err = cmd.Start()
	return stdin, stdout, errors.Join(err, theirIn.Close(), theirOut.Close())
}

// line reads the first line that the process prints: the address it listens on.
func (p *process) line() (string, error) {
	s, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s printed no address: %w\n%s", p.cmd, err, p.log())
	}
	return strings.TrimSpace(s), nil
}

// stop ends the process: first by closing its stdin, then by signals.
func (p *process) stop() error {
	p.stdin.Close()
	timer := time.AfterFunc(time.Second, func() { p.cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	killer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer killer.Stop()
	err := p.cmd.Wait()
	defer p.stderr.Close()
	p.stdout.Close()
	if err != nil && strings.Contains(p.log(), "panic") {
		return fmt.Errorf("%s: %w\n%s", p.cmd, err, p.log())
	}
	return nil
}

// log is what the process has written to stderr, its beginning.
func (p *process) log() string {
	b := make([]byte, 8<<10)
	n, _ := p.stderr.ReadAt(b, 0)
	return string(b[:n])
}

// cpu is the time that the process has computed, its children not counted. The kernel shows it in
// steps of 10 ms.
func (p *process) cpu() time.Duration { return cpuOf(strconv.Itoa(p.cmd.Process.Pid)) }

// childrenCPU is that of its children: plugins, and servers on stdio.
func (p *process) childrenCPU() (total time.Duration) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	for _, list := range lists {
		pids, _ := os.ReadFile(list) // a thread may have ended
		for pid := range strings.FieldsSeq(string(pids)) {
			total += cpuOf(pid)
		}
	}
	return total
}

func cpuOf(pid string) time.Duration {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the memory that the process holds now, and the most that it held, in bytes.
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
