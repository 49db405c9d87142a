//go:build !linux || !(amd64 || arm64)

package sandbox

import "os"

type rules struct{}

func newRules(grants) (*rules, int, []string, error) {
	return nil, 0, nil, &UnsupportedError{"it is not Linux on amd64 or arm64"}
}

func (*rules) launch(program string, args []string) (string, string, []string, []*os.File) {
	return program, "", args, nil
}

func (*rules) closedFolders() []string { return nil }

func (*rules) close() {}
