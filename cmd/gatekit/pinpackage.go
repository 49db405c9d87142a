package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/core/regularfile"
)

// maxProgramBytes is the size of a program up to which its digest is computed.
const maxProgramBytes = 512 << 20

// interpreter matches the programs whose first argument without a dash is the script that they run.
var interpreter = regexp.MustCompile(`^(node|deno|bun|tsx|ruby|perl|sh|bash|python[0-9.]*)$`)

// pinnedPackage returns the package of a server: the package that its command line names, or the
// digest of the program or script that it names with a path. A program that is found in PATH has no
// digest: it belongs to the machine, and the lock file is shared.
func pinnedPackage(s config.Server) pins.Source {
	source := pins.SourceOf(s.Command, s.Args)
	if s.Command == "" || source != (pins.Source{}) {
		return source
	}
	file := ""
	if strings.ContainsRune(s.Command, filepath.Separator) {
		file = s.Command
	}
	if interpreter.MatchString(filepath.Base(s.Command)) {
		file = ""
		at := slices.IndexFunc(s.Args, func(arg string) bool {
			return !strings.HasPrefix(arg, "-")
		})
		if at >= 0 && s.Args[at] == "run" { // bun run, deno run
			at++
		}
		if at >= 0 && at < len(s.Args) {
			file = s.Args[at]
		}
	}
	if file == "" {
		return source
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.Cwd, file)
	}
	source.SHA256 = digestOfFile(file)
	return source
}

// digestOfFile returns the SHA-256 of a regular file in hexadecimal digits, or "" if it cannot be
// read or is too large.
func digestOfFile(file string) string {
	f, err := regularfile.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, maxProgramBytes+1)); err != nil ||
		n > maxProgramBytes {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
