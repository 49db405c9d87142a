package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/core/privatefiles"
)

// wrappedChanged is the value of changed in the [pins] of gatekit wrap without --pins: hide or
// warn, whichever asWrapped chooses. No configuration file has it.
const wrappedChanged = "auto"

// wrappedFolder returns the folder with the lock files of gatekit wrap.
func wrappedFolder() (string, error) {
	state, err := stateFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "pins", "wrap"), nil
}

// addPins makes the server trusted at first use, in a lock file of its own. The name of the file
// has a digest of the command, its arguments and the working folder.
func (o *wrapOptions) addPins(c *config.Config) error {
	if o.pins.value == "off" {
		return nil
	}
	s := c.Servers[0]
	dir, err := wrappedFolder()
	if err == nil {
		folder := privatefiles.Folder{Path: filepath.Dir(dir),
			Danger: "approve what servers declare"}
		if err = folder.Create(); err == nil {
			folder.Path = dir
			err = folder.Create()
		}
	}
	cwd, cwdErr := filepath.Abs(s.Cwd)
	if err == nil {
		err = cwdErr
	}
	if err != nil {
		return fmt.Errorf("find the lock file of what the server declares: %w\nhint: --pins off "+
			"compares nothing", err)
	}
	launch := slices.Concat([]string{cwd, s.Command}, s.Args)
	if s.URL != "" {
		launch = []string{s.URL} // it is the same server in every folder
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", launch))
	p := config.DefaultPins(dir)
	p.File = filepath.Join(dir, s.Name+"-"+hex.EncodeToString(sum[:8])+wrappedSuffix)
	p.First, p.Changed = "trust", wrappedChanged
	if o.pins.value != "" {
		p.Changed = o.pins.value
	}
	c.Pins = &p
	return nil
}

const wrappedSuffix = ".lock"

// wrappedName returns the name of a wrapped server in the commands that approve what it declares.
func wrappedName(lock string) string {
	return strings.TrimSuffix(filepath.Base(lock), wrappedSuffix)
}

// exactVersion matches a version that names one release of a package.
var exactVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+[0-9A-Za-z.+-]*$`)

// packageRunner matches programs that run a package by its name.
var packageRunner = regexp.MustCompile(`^(npm|pnpm|pnpx|yarn|uv|bun|deno|pipx)$`)

// asWrapped sets what only gatekit wrap needs. The program is found in PATH, too, because the lock
// file stays on this machine. The names of variables are not compared: whoever can change them in
// the client's configuration can change the command. approved is the server in the lock, or nil.
func asWrapped(g *pins.GuardedServer, s config.Server, approved *pins.Server) {
	g.Start.Env = nil
	base := filepath.Base(s.Command)
	if g.Package == (pins.Source{}) && !interpreter.MatchString(base) &&
		!packageRunner.MatchString(base) {
		if file, err := exec.LookPath(s.Command); err == nil {
			g.Package.SHA256 = digestOfFile(file)
		}
	}
	if g.Changed != wrappedChanged {
		return
	}
	g.Changed = pins.Hide
	moved := approved != nil && approved.Package != (pins.Source{}) &&
		approved.Package != g.Package
	if moved || isFloating(base, g.Package) {
		g.Changed = pins.Warn
	}
}

// isFloating reports whether a command may run another release at each start.
func isFloating(program string, source pins.Source) bool {
	switch {
	case source.NPM != "" || source.PyPI != "":
		return !exactVersion.MatchString(source.Version)
	case source.Image != "":
		return !strings.Contains(source.Image, "@sha256:")
	}
	return source == (pins.Source{}) && packageRunner.MatchString(program)
}

// lockInterval is how often gatekit wrap looks whether its lock file has changed.
const lockInterval = 500 * time.Millisecond

// watchWrappedLock uses a changed lock file of gatekit wrap until ctx ends. Another process has
// changed it: gatekit pin approve, or a second client that wraps the same server.
func (g *gateway) watchWrappedLock(ctx context.Context, file string) {
	var seen os.FileInfo
	repeat(ctx, lockInterval, func() {
		now, err := os.Stat(file)
		if err != nil || seen != nil && os.SameFile(seen, now) &&
			seen.ModTime().Equal(now.ModTime()) && seen.Size() == now.Size() {
			return
		}
		seen = now
		lock, err := pins.Read(file)
		guard := g.pins.Load()
		if err == nil && guard != nil && lock.Digest() == guard.LockDigest() {
			return
		}
		if err == nil {
			err = g.reloadPins(ctx)
		}
		if err != nil {
			g.log.Error("changed lock file rejected; keeping the previous one", "error", err)
		}
	})
}

// wrappedWaiting returns what waits for the lock files of gatekit wrap, by the names of the
// servers in commands.
func wrappedWaiting() (map[string]*waitingPins, error) {
	dir, err := wrappedFolder()
	if err != nil {
		return nil, err
	}
	folder := privatefiles.Folder{Path: dir, Danger: "approve what servers declare"}
	names, err := folder.Names()
	if err != nil {
		return nil, err
	}
	all := map[string]*waitingPins{}
	for _, name := range names {
		if !strings.HasSuffix(name, wrappedSuffix) || strings.HasPrefix(name, ".") {
			continue
		}
		store, err := waitingStoreOf(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		waiting, err := store.Read()
		if err != nil {
			return nil, err
		}
		if len(waiting.Servers) > 0 && waiting.Log != "" {
			all[wrappedName(name)] = &waitingPins{store: store, log: waiting.Log,
				key: waiting.LogKey, isLocked: func(string) bool { return false }}
		}
	}
	return all, nil
}
