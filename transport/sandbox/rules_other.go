//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"os"
	"syscall"
)

type rules struct{ network *network }

type network struct{}

func newNetwork([]uint16) (*network, error) { return nil, nil }

func (*network) setAttributes(*syscall.SysProcAttr) {}

func (*network) startError(err error) error { return err }

func (*network) receive() ([]*os.File, error) { return nil, nil }

func support(bool) (abi int, notHeld []string, err error) {
	return 0, nil, &UnsupportedError{"it is not Linux on amd64 or arm64"}
}

func newRules(grants) (*rules, int, []string, error) {
	return nil, 0, nil, &UnsupportedError{"it is not Linux on amd64 or arm64"}
}

func (*rules) launch(_ Launch, program string, args []string) (string, string, []string,
	[]*os.File) {
	return program, "", args, nil
}

func (*rules) closedFolders() []string { return nil }

func (*rules) release() {}

func (*rules) close() {}

// Observer is not supported on this system.
type Observer struct{ Env []string }

// Observe returns an *UnsupportedError.
func Observe(Launch) (*Observer, error) {
	return nil, &UnsupportedError{"it is not Linux on amd64 or arm64"}
}

// Launch returns the program itself.
func (*Observer) Launch(program string, args []string) (path, name string, launchArgs []string,
	files []*os.File) {
	return program, "", args, nil
}

// Run observes nothing.
func (*Observer) Run(<-chan struct{}) (Needs, error) { return Needs{}, nil }

// Close does nothing.
func (*Observer) Close() error { return nil }
