package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/transport"
	"gatekit/transport/sandbox"
)

func TestWrapLimitsTheServer(t *testing.T) {
	if _, err := sandbox.Support(); err != nil {
		t.Skip(err)
	}
	run := func(flags ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "gatekit", slices.Concat([]string{"wrap", "--audit",
			filepath.Join(t.TempDir(), "audit.jsonl")}, flags, []string{"sh", "-c",
			"echo files=$(ulimit -n) memory=$(ulimit -d) >&2; cat"})...)
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	free, err := run("--sandbox", "off")
	if err != nil {
		t.Fatal(err, free)
	}
	const limits = "files=77 memory=65536"
	if limited, err := run("--memory", "64MiB", "--files", "77"); err != nil ||
		!strings.Contains(limited, limits) || strings.Contains(free, limits) {
		t.Errorf("got %v: %s, want %s; without limits: %s", err, limited, limits, free)
	}
	for _, test := range []struct{ flags, want string }{
		{"--memory 16777215", "--memory must be at least 16 MiB"},
		{"--files 15", "--files must be at least 16"},
		{"--files -1", "--files must be at least 16"},
		{"--memory 64MiB --sandbox off", "--memory and --files need a sandbox"},
		{"--files 64 --sandbox off", "--memory and --files need a sandbox"},
		{"--memory 64MB", "must be a number of bytes"},
		{"--memory 9223372036854775807GiB", "must be a number of bytes"},
		{"--memory -1GiB", "must be a number of bytes"},
	} {
		output, err := run(strings.Fields(test.flags)...)
		if err == nil || !strings.Contains(output, test.want) {
			t.Errorf("%s: got %v: %s, want %q", test.flags, err, output, test.want)
		}
	}
}

// The names of servers that may do everything are part of the report, also as JSON.
func TestCheckNamesServersWithoutSandbox(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write := func(sandboxes ...string) string {
		text := "[audit]\nfile = \"audit.jsonl\"\n"
		for i, s := range sandboxes {
			text += fmt.Sprintf("[server.s%d]\ncommand = %q\nenv = { MCPTEST_SERVE = \"1\" }\n%s\n",
				i, self, s)
		}
		file := filepath.Join(dir, "gatekit.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	held, err := sandbox.Support()
	if err != nil {
		t.Skip(err)
	}
	for _, test := range []struct {
		sandboxes []string
		want      []string
	}{
		{[]string{"", "sandbox = { level = \"off\" }", "sandbox = { level = \"guard\" }"},
			[]string{"s0", "s1"}},
		{[]string{"sandbox = { level = \"strict\" }"}, nil},
	} {
		file := write(test.sandboxes...)
		output, _ := exec.CommandContext(t.Context(), "gatekit", "check", "--json", "--config",
			file).Output()
		i := bytes.Index(output, []byte(`{"check":"sandbox"`))
		if i < 0 {
			t.Fatalf("no result of the check sandbox: %s", output)
		}
		line, _, _ := bytes.Cut(output[i:], []byte("\n"))
		var got checkResult
		if err := json.Unmarshal(line, &got); err != nil || !got.OK ||
			!slices.Equal(got.NotConfined, test.want) || !strings.Contains(got.Result, held) {
			t.Errorf("got %v: %s, want %q and %q", err, line, test.want, held)
		}
		text, _ := exec.CommandContext(t.Context(), "gatekit", "check", "--config", file).Output()
		for _, name := range append(test.want, "ok    sandbox", held) {
			if !strings.Contains(string(text), name) {
				t.Errorf("the report has no %q: %s", name, text)
			}
		}
	}
}

// BenchmarkStartConfined measures what the level guard adds to the start of a server, until the
// server's first answer. It starts the server with and without the sandbox in turns, and reports
// medians, also of the processor time of all processes. The test program is as large as Gatekit, so
// its start before the server's takes as long.
func BenchmarkStartConfined(b *testing.B) {
	levels := []sandbox.Level{sandbox.Off, sandbox.Guard}
	var wall, cpu [2][]time.Duration
	dir := b.TempDir() // the home folder is the user's, since its entries are granted one by one
	spawn := func(level sandbox.Level) *transport.Child {
		child, err := transport.Spawn(b.Context(), transport.Command{Name: "cat", Path: "cat",
			Dir:     dir,
			Sandbox: &transport.Sandbox{Settings: sandbox.Settings{Level: level}}})
		if err != nil {
			b.Fatal(err)
		}
		return child
	}
	defer spawn(sandbox.Off).Close() // keeps the watcher of transport/process
	for b.Loop() {
		for i, level := range levels {
			before, start := processorTime(b), time.Now()
			child := spawn(level)
			if err := child.Write(b.Context(), []byte(`{"jsonrpc":"2.0"}`)); err != nil {
				b.Fatal(err)
			}
			if _, err := child.Read(b.Context()); err != nil {
				b.Fatal(err)
			}
			wall[i] = append(wall[i], time.Since(start))
			child.Close()
			cpu[i] = append(cpu[i], processorTime(b)-before)
		}
	}
	for i, level := range levels {
		b.ReportMetric(milliseconds(median(wall[i])), string(level)+"-ms")
	}
	b.ReportMetric(milliseconds(median(differences(wall))), "added-ms")
	b.ReportMetric(milliseconds(median(differences(cpu))), "added-cpu-ms")
}

// processorTime returns the processor time of this process and of its children that have ended.
func processorTime(b *testing.B) time.Duration {
	sum := int64(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += u.Utime.Nano() + u.Stime.Nano()
	}
	return time.Duration(sum)
}

func differences(d [2][]time.Duration) (all []time.Duration) {
	for i := range d[0] {
		all = append(all, d[1][i]-d[0][i])
	}
	return all
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
