//go:build !linux || !(amd64 || arm64)

package sandbox

import "os"

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
