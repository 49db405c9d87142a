package sandbox

import (
	"os"
	"slices"
)

// sandboxExec is part of macOS. Apple calls it deprecated, and has kept it since.
const sandboxExec = "/usr/bin/sandbox-exec"

// rules is a profile of Seatbelt.
type rules struct {
	profile string
	network *network // always nil
}

// support returns no version of Landlock, and nothing that Seatbelt cannot refuse.
func support(bool) (abi int, notHeld []string, err error) {
	if _, err := os.Stat(sandboxExec); err != nil {
		return 0, nil, &UnsupportedError{"macOS has no " + sandboxExec}
	}
	return 0, nil, nil
}

func newRules(g grants) (*rules, int, []string, error) {
	_, notHeld, err := support(g.noNetwork)
	switch {
	case err != nil:
		return nil, 0, nil, err
	case g.byDefault:
		return nil, 0, nil, &UnsupportedError{"the sandbox for macOS was never tested, so it is " +
			"used only if a level is asked for"}
	case g.memory > 0 || g.files > 0:
		return nil, 0, nil, &UnsupportedError{"limits of memory and of files need Linux"}
	}
	return &rules{profile: seatbeltProfile(g)}, 0, notHeld, nil
}

// launch returns the command that starts a program with the profile. The program's argv[0] is its
// path.
func (r *rules) launch(l Launch, program string, args []string) (string, string, []string,
	[]*os.File) {
	return sandboxExec, "", slices.Concat([]string{"-p", r.profile, program}, args), l.Files
}

func (*rules) closedFolders() []string { return nil }

func (*rules) release() error { return nil }

func (*rules) close() {}
