package transport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"gatekit/transport/process"
	"gatekit/transport/sandbox"
)

// Learn runs the process of a server without a sandbox, with stdin and stdout, until it ends. It
// returns what the process would need beside the grants of the level strict. The end of ctx ends
// the process. HOME and TMPDIR are private folders, as with strict.
func Learn(ctx context.Context, c Command, stdin, stdout *os.File) (sandbox.Needs, error) {
	fail := func(err error) (sandbox.Needs, error) {
		return sandbox.Needs{}, fmt.Errorf("start server %q: %w", c.Name, err)
	}
	env := process.Environment(c.Env)
	program, err := process.FindProgram(c.Path, c.Dir, env)
	if err != nil {
		return fail(err)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fail(err)
	}
	launch := sandbox.Launch{Program: program, Args: c.Args, Dir: dir, Env: env,
		Given: slices.Collect(maps.Keys(c.Env))}
	if c.Sandbox != nil {
		launch.Hidden, launch.Fixed = c.Sandbox.Hidden, c.Sandbox.Fixed
	}
	o, err := sandbox.Observe(launch)
	if err != nil {
		return fail(err)
	}
	defer o.Close()
	path, name, args, files := o.Launch(program, c.Args)
	p, err := process.Start(process.Command{Description: fmt.Sprintf("server %q", c.Name),
		Path: path, Name: name, Args: args, Files: files, Dir: c.Dir, Env: o.Env, Stdin: stdin,
		Stdout: stdout, Log: c.Log, Secrets: slices.Collect(maps.Values(c.Env)), Redact: c.Redact})
	if err != nil {
		return sandbox.Needs{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			p.Signal(s)
			select {
			case <-p.Done():
			case <-time.After(cmp.Or(c.Grace, defaultGrace)):
			}
		}
	})
	defer stop()
	needs, err := o.Run(p.Done())
	<-p.Done()
	return needs, err
}
