package plugins

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gatekit/transport/sandbox"
)

// Sandbox says what the process of a plugin may do. Its zero value is the level strict: the process
// reads its program and the system's libraries, and writes to its own folders.
type Sandbox struct {
	// Level is "" (strict, and no sandbox if the system cannot hold it), strict, guard or off. The
	// process does not start if the system cannot hold a level that is given.
	Level            sandbox.Level
	Read, Write, Run []string // see sandbox.Settings; absolute paths
	// Network allows connections. Without it, the process can only wait for Gatekit to connect.
	Network bool
	// Hidden and Fixed are Gatekit's files; see sandbox.Launch. Processes that run already are not
	// started again when they change.
	Hidden, Fixed []string
}

// key identifies what the process may do.
func (s Sandbox) key() string {
	return fmt.Sprintf("%q %q %q %q %v", s.Level, s.Read, s.Write, s.Run, s.Network)
}

// confine prepares the sandbox of the process, and changes the command so that it starts there. The
// process can write to its working folder and to the folder of its socket.
func (r *runner) confine() error {
	level := r.sandbox.Level
	if level == "" {
		level = sandbox.Strict
	}
	own := []string{r.command.Dir, r.socketDir}
	box, err := sandbox.New(sandbox.Settings{Level: level, Read: r.sandbox.Read,
		Write: slices.Concat(own, r.sandbox.Write), Run: r.sandbox.Run,
		NoNetwork: !r.sandbox.Network, Listen: true,
		ByDefault: r.sandbox.Level == ""}, sandbox.Launch{Program: r.command.Path,
		Name: r.command.Name, Args: r.command.Args, Files: r.command.Files, Dir: r.command.Dir,
		Env: r.command.Env, Given: slices.Collect(maps.Keys(r.given)), Hidden: r.sandbox.Hidden,
		Fixed: r.sandbox.Fixed})
	if unsupported, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		if r.sandbox.Level != "" {
			return fmt.Errorf("%w\nhint: with sandbox = { level = \"off\" }, the plugin starts "+
				"and may do everything that you may do", err)
		}
		r.onUnconfined(unsupported)
		return nil
	}
	if err != nil {
		return err
	}
	r.box, r.command.Env = box, box.Env
	r.command.Path, r.command.Name, r.command.Args, r.command.Files = box.Launch(r.command.Path,
		r.command.Args)
	r.command.OnStderr = r.hint
	return nil
}

// hint logs how the operator grants what the process was refused, by a line of its stderr.
func (r *runner) hint(line string) {
	if refusal, ok := r.box.Refusal(line); ok && r.hints.Add(1) <= maxHints {
		r.command.Log.Warn("the sandbox may have refused something that the plugin needs", "hint",
			fmt.Sprintf("add to [plugin.sandbox]: %s", refusal))
	}
}

// maxHints limits the hints about one process, which the process can cause at will.
const maxHints = 8
