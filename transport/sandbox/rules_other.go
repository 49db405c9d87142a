//go:build !linux || !(amd64 || arm64)

package sandbox

import "os"

type rules struct{}

func newRules(grants) (*rules, []string, error) {
	return nil, nil, &UnsupportedError{"it is not Linux on amd64 or arm64"}
}

func (*rules) launch(program string, args []string) (string, string, []string, []*os.File) {
	return program, "", args, nil
}

func (*rules) close() {}
