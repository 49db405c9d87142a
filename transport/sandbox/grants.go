package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// access says what may be done with the files of a tree.
type access uint8

const (
	read access = 1 << iota
	write
	execute
)

// grant grants access to a file, or to a folder and everything in it.
type grant struct {
	path   string
	access access
}

// grants holds everything that a process may do.
type grants struct {
	trees         []grant
	hidden, fixed []string // are taken out of the trees: entirely, or for writing
	list          bool     // all folders may be listed
	noNetwork     bool
	strict        bool // also refuse system calls that Guard leaves to browsers and the like
}

// newGrants returns what the settings grant to a process with these home folders and a private
// folder. The first home folder is the one of the process.
func newGrants(s Settings, l Launch, homes []string, private string) grants {
	g := grants{list: s.Level == Guard, noNetwork: s.NoNetwork, strict: s.Level == Strict}
	for _, p := range l.Hidden {
		g.hidden = append(g.hidden, places(p)...)
	}
	for _, p := range l.Fixed {
		g.fixed = append(g.fixed, places(p)...)
	}
	named := resolved(slices.Concat(s.Read, s.Write, s.Run))
	for _, home := range homes {
		for _, p := range secretPaths(home) {
			if secret := place(p); !slices.Contains(named, secret) {
				g.hidden = append(g.hidden, secret)
			}
		}
	}
	written := read | write
	if s.Level == Guard {
		written |= execute
	}
	g.add(read|execute, s.Read...)
	g.add(written, s.Write...)
	g.add(read|write|execute, s.Run...)
	g.add(written, private)
	g.add(read|write, deviceFiles...)
	if s.Level == Strict {
		g.add(read|execute, systemPaths...)
		for _, p := range programPaths(l) {
			if !containsOne(p, homes) {
				g.add(read|execute, p)
			}
		}
		return g
	}
	g.add(read|execute, "/")
	g.add(read|write, guardDeviceFiles...)
	g.add(written, cachePaths(homes[0])...)
	// A client often starts servers in "/" or in the home folder without a reason.
	if !containsOne(l.Dir, homes) {
		g.add(written, l.Dir)
	}
	g.add(written, namedPaths(l)...)
	return g
}

// add grants access to those of the paths that exist. A symbolic link in a tree that the process
// can write is not followed: at its last start, the process may have made it lead elsewhere.
func (g *grants) add(a access, paths ...string) {
	for _, p := range paths {
		real := resolved([]string{p})
		if len(real) == 0 || real[0] != filepath.Clean(p) && g.isWritten(p) {
			continue
		}
		g.trees = append(g.trees, grant{real[0], a})
	}
}

// isWritten reports whether a path, or a folder on the way to it, lies in a tree that may be
// written.
func (g *grants) isWritten(path string) bool {
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		parent := place(filepath.Dir(path))
		for _, t := range g.trees {
			if t.access&write != 0 && isWithin(parent, t.path) {
				return true
			}
		}
	}
	return false
}

// containsOne reports whether a folder contains one of the home folders, or is a folder of a home
// folder that holds programs beside data, such as ~/.local.
func containsOne(folder string, homes []string) bool {
	folder = place(folder)
	return slices.ContainsFunc(homes, func(home string) bool {
		home = place(home)
		return isWithin(home, folder) || filepath.Dir(folder) == home &&
			strings.HasPrefix(filepath.Base(folder), ".")
	})
}

// resolved returns the paths without symbolic links. It leaves out paths that do not exist: a rule
// of Landlock needs a file.
func resolved(paths []string) []string {
	var found []string
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil && filepath.IsAbs(real) {
			found = append(found, real)
		}
	}
	return found
}

// place returns a path without symbolic links. The file need not exist yet.
func place(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	return filepath.Join(place(folder), filepath.Base(path))
}

// places returns the file that a path leads to, and the symbolic links on the way to it, which must
// not be replaced either.
func places(path string) []string {
	all := []string{place(path)}
	for next := []string{path}; len(next) > 0 && len(all) < maxLinks; next = next[1:] {
		for p := filepath.Clean(next[0]); p != "/" && p != "."; p = filepath.Dir(p) {
			target, err := os.Readlink(p)
			if err != nil {
				continue
			}
			link := filepath.Join(place(filepath.Dir(p)), filepath.Base(p))
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(link), target)
			}
			all, next = append(all, link), append(next, target)
		}
	}
	return all
}

const maxLinks = 40 // as many as Linux follows

// isWithin reports whether a clean path is folder or lies in it.
func isWithin(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// namedPaths returns the existing files and folders that the arguments name, also in the form
// --flag=path. A word without a slash is not taken for a path.
func namedPaths(l Launch) []string {
	var paths []string
	for _, arg := range l.Args {
		_, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(arg, "-") {
			value = arg
		}
		if !strings.Contains(value, "/") && value != "." && value != ".." {
			continue
		}
		if !filepath.IsAbs(value) {
			value = filepath.Join(l.Dir, value)
		}
		if _, err := os.Stat(value); err == nil {
			paths = append(paths, filepath.Clean(value))
		}
	}
	return paths
}

// programPaths returns what a program needs of its own installation: the folder of an interpreter
// such as ~/.nvm/versions/node/v22, and the packages of the files that the arguments name.
func programPaths(l Launch) []string {
	paths := []string{l.Program}
	if real, err := filepath.EvalSymlinks(l.Program); err == nil {
		paths = append(paths, real)
		if bin := filepath.Dir(real); filepath.Base(bin) == "bin" && filepath.Dir(bin) != "/" {
			paths = append(paths, filepath.Dir(bin))
		}
		paths = append(paths, packageOf(real))
	}
	for _, p := range namedPaths(l) {
		info, err := os.Stat(p)
		if err == nil && info.Mode().IsRegular() {
			paths = append(paths, p, packageOf(p))
		}
	}
	return paths
}

// packageOf returns the folder of the package that a file belongs to: the folder that holds the
// outermost node_modules, else the next folder upwards with a manifest, else the file.
func packageOf(file string) string {
	if before, _, ok := strings.Cut(file, "/node_modules/"); ok {
		return before + "/node_modules"
	}
	for folder := filepath.Dir(file); folder != "/"; folder = filepath.Dir(folder) {
		for _, manifest := range []string{"package.json", "pyproject.toml", "pyvenv.cfg"} {
			if _, err := os.Stat(filepath.Join(folder, manifest)); err == nil {
				return folder
			}
		}
	}
	return file
}

// deviceFiles are harmless devices. Programs expect that they can be written.
var deviceFiles = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
	"/dev/tty"}

// guardDeviceFiles are for programs that start terminals or browsers.
var guardDeviceFiles = []string{"/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/fuse"}

// systemPaths are the programs, libraries and settings that every program may read.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc",
	"/sys/devices/system/cpu", "/sys/fs/cgroup", "/etc/alternatives", "/etc/ca-certificates",
	"/etc/ca-certificates.conf", "/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias",
	"/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd",
	"/etc/pki", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl",
	"/etc/timezone", "/nix/store", "/opt"}

// secretPaths returns the files and folders that hold secrets of the user, of browsers and of MCP
// clients, whose files hold the secrets of other servers.
func secretPaths(home string) []string {
	var paths []string
	if os.Geteuid() == 0 { // other users cannot read them
		paths = append(paths, "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers")
	}
	for _, name := range []string{".ssh", ".gnupg", ".aws", ".azure", ".kube",
		".docker/config.json", ".netrc", ".git-credentials", ".config/gcloud", ".config/gh",
		".config/git/credentials", ".config/op", ".config/rclone", ".local/share/keyrings",
		".password-store", ".pgpass", ".pypirc", ".terraform.d/credentials.tfrc.json",
		".vault-token", ".mozilla", ".config/google-chrome", ".config/chromium",
		".config/BraveSoftware", ".config/microsoft-edge", ".config/opera", ".config/vivaldi",
		".config/Signal", ".config/Claude", ".claude.json", ".claude", ".cursor", ".codex",
		".gemini", ".codeium", ".config/Code/User", ".config/Code - Insiders/User",
		".config/goose", ".config/opencode", ".config/zed", ".bash_history", ".zsh_history"} {
		if filepath.IsAbs(home) {
			paths = append(paths, filepath.Join(home, name))
		}
	}
	return paths
}

// cachePaths returns the folders in which package managers and servers keep what can be fetched
// again.
func cachePaths(home string) []string {
	if !filepath.IsAbs(home) {
		return nil
	}
	var paths []string
	for _, name := range []string{".cache", ".npm", ".bun/install/cache", ".yarn/cache"} {
		paths = append(paths, filepath.Join(home, name))
	}
	return paths
}
