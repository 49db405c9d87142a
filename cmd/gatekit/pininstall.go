package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/transport/npmpackage"
	"gatekit/transport/sandbox"
)

// packageStore returns the folder with the packages that gatekit pin installs. npm gets the
// variables of a server that are settings of npm, or say how to reach the network.
func packageStore(s config.Server) (npmpackage.Store, error) {
	state, err := stateFolder()
	if err != nil {
		return npmpackage.Store{}, fmt.Errorf("find the folder of installed packages: %w", err)
	}
	store := npmpackage.Store{Dir: filepath.Join(state, "packages")}
	for name, value := range s.Env {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "npm_config_") ||
			strings.HasSuffix(lower, "_proxy") || slices.Contains([]string{"PATH", "HOME",
			"NODE_EXTRA_CA_CERTS"}, name) {
			store.Env = append(store.Env, name+"="+string(value))
		}
	}
	return store, nil
}

// npmCommand returns the package that npx or npm exec starts as a server, if gatekit pin installs
// it.
func npmCommand(s config.Server, c *config.Config) (npmpackage.Command, bool) {
	if c.Pins != nil && c.Pins.Of(s).Install == "none" {
		return npmpackage.Command{}, false
	}
	return npmpackage.ParseCommand(s.Command, s.Args)
}

// installedPackage returns the approved package that a command line is started from. It returns
// false if there is none: the lock has no integrity, or the command line names another release.
func installedPackage(command npmpackage.Command, approved *pins.Server) (npmpackage.Package,
	bool) {
	if approved == nil || approved.Package.Integrity == "" {
		return npmpackage.Package{}, false
	}
	p := npmpackage.Package{Name: approved.Package.NPM, Version: approved.Package.Version,
		Integrity: approved.Package.Integrity}
	if !command.Uses(p) {
		return npmpackage.Package{}, false
	}
	return p, true
}

// packageOf returns the package of a server. A server that is started from its installed package
// has the approved package, because that is verified at each start.
func packageOf(s config.Server, c *config.Config, approved *pins.Server) pins.Source {
	if command, ok := npmCommand(s, c); ok {
		if _, ok := installedPackage(command, approved); ok {
			return approved.Package
		}
	}
	return pinnedPackage(s)
}

// startedProgram is the program that is started for a server.
type startedProgram struct {
	path   string
	args   []string
	folder string // of the installed package; "" if the command is started as it is
}

// programOf returns the program that is started for a server. It reads the lock file. If the lock
// has an installed package of the server, only that is started, and only if it is as it was
// installed.
func programOf(s config.Server, c *config.Config) (startedProgram, error) {
	command, ok := npmCommand(s, c)
	if !ok {
		return startedProgram{path: s.Command, args: s.Args, folder: s.Package}, nil
	}
	if c.Pins != nil {
		lock, err := pins.Read(c.Pins.File)
		if err != nil {
			return startedProgram{}, err
		}
		if p, ok := installedPackage(command, lock.Servers[s.Name]); ok {
			store, err := packageStore(s)
			if err != nil {
				return startedProgram{}, err
			}
			installed, err := store.Find(p)
			if err != nil {
				return startedProgram{}, fmt.Errorf("%w\nhint: %s", err, installHint(s, c, err))
			}
			return programIn(installed, command)
		}
	}
	if b := s.Sandbox; b != nil && b.Level == string(sandbox.Strict) &&
		b.Network.Mode == config.NetworkNone {
		return startedProgram{}, fmt.Errorf("the package %s is not installed, and %s needs the "+
			"network\nhint: %s", command.Name, filepath.Base(s.Command), installHint(s, c, nil))
	}
	return startedProgram{path: s.Command, args: s.Args}, nil
}

// installHint returns how the operator installs the package of a server. err is the error of
// npmpackage.Store.Find, or nil.
func installHint(s config.Server, c *config.Config, err error) string {
	changed, isChanged := errors.AsType[*npmpackage.ChangedError](err)
	switch {
	case c.File == "" && isChanged:
		return fmt.Sprintf("keep what you need of %s and remove it, then run gatekit wrap with "+
			"--install", changed.Dir)
	case c.File == "":
		return "run gatekit wrap with --install"
	case c.Pins == nil:
		return "add a table [pins] to " + displayPath(c.File) + ", then run gatekit pin " + s.Name
	}
	return "run gatekit pin " + s.Name
}

// programIn returns the program of an installed package.
func programIn(i *npmpackage.Installed, command npmpackage.Command) (startedProgram, error) {
	file, err := i.Program(command.Bin)
	return startedProgram{command.Node, append([]string{file}, command.Args...), i.Dir}, err
}

// installed returns a server as it is started to be pinned, and its package, which it installs if
// needed.
func (p *program) installed(ctx context.Context, o pinStarts, s config.Server) (config.Server,
	pins.Source, error) {
	command, ok := npmCommand(s, o.config)
	approved := o.lock.Servers[s.Name]
	want, inLock := installedPackage(command, approved)
	if !ok || !inLock && !o.pin {
		return s, pinnedPackage(s), nil
	}
	store, err := packageStore(s)
	if err != nil {
		return s, pins.Source{}, err
	}
	version := command.Version
	if o.update && !command.IsExact() {
		want = npmpackage.Package{}
	} else if inLock {
		version = want.Version
	}
	i, err := p.ensure(ctx, store, command.Name, version, want, o.pin)
	if err != nil {
		return s, pins.Source{}, err
	}
	program, err := programIn(i, command)
	if err != nil {
		return s, pins.Source{}, err
	}
	s.Command, s.Args, s.Package = program.path, program.args, program.folder
	return s, pins.Source{NPM: i.Name, Version: i.Version, Integrity: i.Integrity}, nil
}

// ensure returns the package want from the store. If the store does not have it, or want is zero,
// ensure installs it. With repair set, it also installs a package again that has changed.
func (p *program) ensure(ctx context.Context, store npmpackage.Store, name, version string,
	want npmpackage.Package, repair bool) (*npmpackage.Installed, error) {
	if want != (npmpackage.Package{}) {
		i, err := store.Find(want)
		changed, isChanged := errors.AsType[*npmpackage.ChangedError](err)
		switch {
		case isChanged && repair:
			p.log.Warn("installed package is replaced", "package", want, "reason", changed.Reason,
				"previous", changed.Dir+".replaced")
		case err == nil || !errors.Is(err, npmpackage.ErrNotInstalled):
			return i, err
		}
	}
	i, err := store.Install(ctx, name, version, want)
	if err == nil {
		p.log.Info("package installed", "package", i.Package, "folder", i.Dir)
	}
	return i, err
}

// installWrapped installs the package of the server of gatekit wrap, unless that was done before,
// and writes it into the lock file.
func (p *program) installWrapped(ctx context.Context, c *config.Config) error {
	s := c.Servers[0]
	if c.Pins == nil {
		return errors.New("--install needs the lock file\nhint: leave out --pins off")
	}
	command, ok := npmCommand(s, c)
	if !ok {
		return errors.New("--install needs a server that npx or npm exec starts: one package of " +
			"the npm registry, such as npx -y @modelcontextprotocol/server-everything")
	}
	lock, err := pins.Read(c.Pins.File)
	if err != nil {
		return err
	}
	store, err := packageStore(s)
	if err != nil {
		return err
	}
	want, inLock := installedPackage(command, lock.Servers[s.Name])
	version := command.Version
	if inLock {
		version = want.Version
	}
	i, err := p.ensure(ctx, store, command.Name, version, want, false)
	switch {
	case err != nil && inLock:
		return fmt.Errorf("start server %q: %w\nhint: %s", s.Name, err, installHint(s, c, err))
	case err != nil || inLock:
		return err
	}
	if _, err := programIn(i, command); err != nil {
		return fmt.Errorf("start server %q: %w", s.Name, err)
	}
	_, err = pins.Update(c.Pins.File, func(l *pins.Lock) error {
		server := l.Servers[s.Name]
		if server == nil {
			server = &pins.Server{Start: pinnedStart(s, p.masked.mask)}
			server.Start.Env = nil
			l.Servers[s.Name] = server
		}
		server.Package = pins.Source{NPM: i.Name, Version: i.Version, Integrity: i.Integrity}
		return nil
	})
	return err
}
