package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// access says what may be done with the files of a tree.
type access uint8

const (
	read access = 1 << iota
	write
	execute
	list // only the names in folders
)

// grant grants access to a file, or to a folder and everything in it.
type grant struct {
	path   string
	access access
	// named is set if the operator named the path. Secrets that the path lies in do not apply.
	named bool
}

// grants holds everything that a process may do.
type grants struct {
	trees         []grant
	hidden, fixed []string // are taken out of the trees: entirely, or for writing
	readable      []string // are granted although they lie in hidden
	secrets       []string // are hidden from trees that are not named
	list          bool     // all folders may be listed
	noNetwork     bool
	listen        bool // see Settings
	self          bool // this program may be executed
	ownNetwork    bool // the process has a network namespace of its own
	byDefault     bool // see Settings
	memory, files int  // limits of each process; 0 is none
	strict        bool // also refuse system calls that Guard leaves to browsers and the like
}

// newGrants returns what the settings grant to a process with these home folders and a private
// folder. The first home folder is the one of the process.
func newGrants(s Settings, l Launch, homes []string, private string) grants {
	g := grants{list: s.Level == Guard, noNetwork: s.NoNetwork, listen: s.Listen,
		ownNetwork: len(s.Ports) > 0, self: l.Program == Self, byDefault: s.ByDefault,
		strict: s.Level == Strict,
		memory: s.Memory, files: s.Files}
	for _, p := range l.Hidden {
		g.hidden = append(g.hidden, places(p)...)
	}
	for _, p := range l.Fixed {
		g.fixed = append(g.fixed, places(p)...)
	}
	for _, p := range l.Readable {
		g.readable = append(g.readable, place(p))
	}
	folders := map[string]string{}
	for _, home := range homes {
		for _, p := range secretPaths(home) {
			g.secrets = append(g.secrets, placeAmong(p, folders))
		}
	}
	written := read | write
	if s.Level == Guard {
		written |= execute
	}
	g.add(read|execute, true, s.Read...)
	g.add(written, true, s.Write...)
	g.add(read|write|execute, true, s.Run...)
	g.add(written, false, private)
	g.add(read|write, false, deviceFiles...)
	if s.Level == Strict {
		g.add(read|execute, false, systemPaths...)
		if runtime.GOOS == "darwin" {
			g.add(read|execute, false, macSystemPaths...)
		}
		for _, p := range programPaths(l) {
			if !containsOne(p, homes) {
				g.add(read|execute, false, p)
			}
		}
		return g
	}
	g.add(read|execute, false, "/")
	g.add(read|write, false, guardDeviceFiles...)
	if os.Geteuid() != 0 {
		// Browsers confine their own processes in user namespaces, whose maps of users they write.
		// As root, the process could change the settings of the kernel in /proc/sys.
		g.add(read|write, false, "/proc")
	}
	g.add(written, false, cachePaths(homes[0])...)
	g.add(written, false, dataPaths(l, homes[0])...)
	// A client often starts servers in "/" or in the home folder without a reason.
	if !containsOne(l.Dir, homes) {
		g.add(written, false, l.Dir)
	}
	for _, p := range namedPaths(l, homes[0]) {
		g.addNamed(p, written, homes)
	}
	return g
}

// addNamed grants access to a path that the command names, for Guard. The folder of a file is
// granted too: many programs write a file by renaming another one, and databases have files beside
// their own. A secret may only be read.
func (g *grants) addNamed(n namedPath, a access, homes []string) {
	real, folder := place(n.path), filepath.Dir(place(n.path))
	if i := slices.IndexFunc(g.secrets, func(s string) bool { return isWithin(real, s) }); i >= 0 {
		if pkg := packageOf(real); pkg != g.secrets[i] && isWithin(pkg, g.secrets[i]) {
			real = pkg // a program in a client's folder
		}
		g.add(read|execute, true, real)
		return
	}
	if n.readOnly || slices.ContainsFunc(programFolders, func(f string) bool {
		return isWithin(real, place(f))
	}) {
		return
	}
	g.add(a, false, n.path)
	info, err := os.Stat(n.path)
	if err == nil && !info.Mode().IsRegular() || containsOne(folder, homes) ||
		slices.Contains(sharedFolders, folder) || folder == place(os.TempDir()) {
		return
	}
	g.add(a, false, filepath.Dir(n.path))
}

// add grants access to those of the paths that exist. A symbolic link in a tree that the process
// can write is not followed: at its last start, the process may have made it lead elsewhere.
func (g *grants) add(a access, named bool, paths ...string) {
	for _, p := range paths {
		real := resolved([]string{p})
		if len(real) == 0 || real[0] != filepath.Clean(p) && g.isWritten(p) {
			continue
		}
		g.trees = append(g.trees, grant{real[0], a, named})
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

// placeAmong returns place(path). It remembers the places of folders, for paths that share them.
func placeAmong(path string, folders map[string]string) string {
	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	real, ok := folders[folder]
	if !ok {
		real = placeAmong(folder, folders)
		folders[folder] = real
	}
	real = filepath.Join(real, filepath.Base(path))
	if info, err := os.Lstat(real); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return place(real)
	}
	return real
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
	return path == folder || folder == "/" || len(path) > len(folder) && path[len(folder)] == '/' &&
		path[:len(folder)] == folder
}

// namedPath is a path in the command of the operator. The file need not exist.
type namedPath struct {
	path     string
	readOnly bool
	folder   bool // it is the path of a folder, by the name of its flag or variable
}

// namedPaths returns the paths that the arguments name, also in the form --flag=path, and the
// absolute paths in the environment variables that the operator set. An argument without a slash is
// not taken for a path.
func namedPaths(l Launch, home string) []namedPath {
	var named []namedPath
	flag := ""
	for _, arg := range l.Args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(arg, "-") {
			name, value = flag, arg
		}
		flag = ""
		if strings.HasPrefix(arg, "-") && !ok {
			flag = arg
		}
		for _, value := range strings.Split(value, ",") {
			value = toPath(value, home)
			if !strings.Contains(value, "/") && value != "." && value != ".." ||
				strings.Contains(value, "://") {
				continue
			}
			if !filepath.IsAbs(value) {
				value = filepath.Join(l.Dir, value)
			}
			named = append(named, namedPath{path: filepath.Clean(value), folder: namesFolder(name)})
		}
	}
	for _, name := range l.Given {
		if slices.Contains(ownVariables, name) {
			continue
		}
		readOnly := slices.ContainsFunc([]string{"CERT", "CONFIG", "CREDENTIAL", "KEY", "SECRET",
			"TOKEN"}, func(word string) bool { return strings.Contains(name, word) })
		for _, value := range strings.Split(variable(l.Env, name), ",") {
			if value = toPath(value, home); filepath.IsAbs(value) {
				named = append(named, namedPath{filepath.Clean(value), readOnly,
					namesFolder(name)})
			}
		}
	}
	return named
}

// ownVariables name folders that hold more than the files of the server.
var ownVariables = []string{"HOME", "OLDPWD", "PATH", "PWD", "SHELL"}

// namesFolder reports whether the value of a flag or variable is a folder, as of --data-dir or
// CACHE_ROOT.
func namesFolder(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"dir", "directory", "folder", "home", "root"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

// toPath returns the path in a URI of a file, a database or a socket, and writes out "~/". It
// returns other values unchanged.
func toPath(value, home string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		return filepath.Join(home, rest)
	}
	scheme, rest, ok := strings.Cut(value, "://")
	if ok && slices.Contains([]string{"file", "sqlite", "unix"}, scheme) {
		return "/" + strings.TrimLeft(rest, "/")
	}
	return value
}

// programPaths returns what a program needs of its own installation: the folder of an interpreter
// such as ~/.nvm/versions/node/v22, and the packages of the files that the arguments name.
func programPaths(l Launch) []string {
	if l.Program == Self {
		return nil // see grants.self
	}
	paths := []string{l.Program, packageOf(l.Program)} // of a venv, the program is a link
	if real, err := filepath.EvalSymlinks(l.Program); err == nil {
		paths = append(paths, real)
		if bin := filepath.Dir(real); filepath.Base(bin) == "bin" && filepath.Dir(bin) != "/" {
			paths = append(paths, filepath.Dir(bin))
		}
		paths = append(paths, packageOf(real))
	}
	l.Given = nil
	hasScript := false
	for _, n := range namedPaths(l, variable(l.Env, "HOME")) {
		info, err := os.Stat(n.path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		paths = append(paths, n.path, packageOf(n.path))
		folder := filepath.Dir(n.path)
		if slices.Contains(scripts, filepath.Ext(n.path)) && !hasScript &&
			!slices.Contains(sharedFolders, place(folder)) {
			hasScript = true
			paths = append(paths, folder) // has the modules that the script imports
		}
	}
	for _, p := range slices.Clone(paths) {
		paths = append(paths, filepath.Join(p, "node_modules")) // may be a link
	}
	return paths
}

// scripts are the names' ends of scripts that import modules from their folder.
var scripts = []string{".cjs", ".js", ".mjs", ".pl", ".py", ".rb", ".ts"}

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
	"/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/gai.conf",
	"/etc/gitconfig",
	"/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/mime.types",
	"/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/pki", "/etc/protocols",
	"/etc/resolv.conf", "/etc/services", "/etc/ssl", "/etc/timezone", "/nix/store", "/opt"}

// macSystemPaths are further such paths of macOS.
var macSystemPaths = []string{"/System", "/Library", "/private/etc", "/private/var/db/timezone",
	"/private/var/db/dyld", "/private/var/select", "/Applications/Xcode.app"}

// macSecrets are secrets of macOS in the home folder.
var macSecrets = []string{"Library/Keychains", "Library/Cookies", "Library/Safari", "Library/Mail",
	"Library/Messages", "Library/Application Support/AddressBook",
	"Library/Application Support/BraveSoftware", "Library/Application Support/Chromium",
	"Library/Application Support/Claude", "Library/Application Support/Code/User",
	"Library/Application Support/Code - Insiders/User", "Library/Application Support/Cursor",
	"Library/Application Support/Firefox", "Library/Application Support/Google/Chrome",
	"Library/Application Support/Microsoft Edge", "Library/Application Support/Signal",
	"Library/Containers", "Library/Group Containers"}

// secretPaths returns the files and folders that hold secrets of the user, of browsers and of MCP
// clients, whose files hold the secrets of other servers.
func secretPaths(home string) []string {
	var paths []string
	if os.Geteuid() == 0 { // other users cannot read them
		paths = append(paths, "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers")
	}
	names := []string{".ssh", ".gnupg", ".aws", ".azure", ".kube",
		".docker/config.json", ".netrc", ".git-credentials", ".config/gcloud", ".config/gh",
		".config/git/credentials", ".config/op", ".config/rclone", ".local/share/keyrings",
		".password-store", ".pgpass", ".pypirc", ".terraform.d/credentials.tfrc.json",
		".vault-token", ".mozilla", ".config/google-chrome", ".config/chromium",
		".config/BraveSoftware", ".config/microsoft-edge", ".config/opera", ".config/vivaldi",
		".config/Signal", ".config/Claude", ".claude.json", ".claude", ".cursor", ".codex",
		".gemini", ".codeium", ".config/Code/User", ".config/Code - Insiders/User",
		".config/goose", ".config/opencode", ".config/zed", ".bash_history", ".zsh_history"}
	if runtime.GOOS == "darwin" {
		names = append(names, macSecrets...)
	}
	for _, name := range names {
		if filepath.IsAbs(home) {
			paths = append(paths, filepath.Join(home, name))
		}
	}
	return paths
}

// programFolders hold programs and settings of the system. A path in them that the command names is
// not granted for writing.
var programFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/nix",
	"/proc", "/sbin", "/sys", "/usr"}

// sharedFolders hold files of many programs. A file in them that the command names does not grant
// the folder.
var sharedFolders = []string{"/", "/opt", "/run", "/tmp", "/var", "/var/run", "/var/tmp"}

// caches are the folders in which package managers and servers keep what can be fetched again, by
// the programs that need them.
var caches = []struct{ programs, folders []string }{
	{nil, []string{".cache"}},
	{[]string{"npm", "npx"}, []string{".npm"}},
	{[]string{"bun", "bunx"}, []string{".bun/install/cache"}},
	{[]string{"pnpm", "pnpx"}, []string{".local/share/pnpm/store", ".local/state/pnpm"}},
	{[]string{"yarn"}, []string{".yarn/cache", ".yarn/berry"}},
	{[]string{"uv", "uvx"}, []string{".local/share/uv"}},
	{[]string{"pipx"}, []string{".local/share/pipx", ".local/pipx"}},
}

// cachePaths returns the folders of caches.
func cachePaths(home string) []string {
	if !filepath.IsAbs(home) {
		return nil
	}
	var paths []string
	for _, c := range caches {
		for _, folder := range c.folders {
			paths = append(paths, filepath.Join(home, folder))
		}
	}
	return paths
}

// makeFolders makes the folders that the program may need, since Landlock grants only what exists:
// the caches of the package managers that the command names, the data folders of the server, and
// the folders that flags and variables name. It returns those that should be removed if they stay
// empty. A folder that cannot be made is left out.
func makeFolders(l Launch, home string) (made []string) {
	if i, err := os.Stat(home); !filepath.IsAbs(home) || err != nil || !i.IsDir() {
		return nil
	}
	words := []string{filepath.Base(l.Program)}
	for _, arg := range l.Args {
		words = append(words, strings.Fields(arg)...)
	}
	for _, c := range caches {
		if !slices.ContainsFunc(words, func(word string) bool {
			return slices.Contains(c.programs, word)
		}) {
			continue
		}
		for _, folder := range append(slices.Clone(c.folders), ".cache") {
			os.MkdirAll(filepath.Join(home, folder), 0o755)
		}
	}
	folders := dataPaths(l, home)
	for _, n := range namedPaths(l, home) {
		if n.folder && !n.readOnly {
			folders = append(folders, n.path)
		}
	}
	for _, folder := range folders {
		if os.Mkdir(folder, 0o700) == nil {
			made = append(made, folder)
		}
	}
	return made
}

// dataFolders are the folders in the home folder of servers that do not start without them, and
// whose name differs from the name of the server.
var dataFolders = map[string]string{
	"cloudbase-mcp":                  ".config/.cloudbase",
	"desktop-commander":              ".claude-server-commander",
	"local-mcp-server":               ".local/state/glean",
	"mcp-server-atlassian-bitbucket": ".mcp",
	"mcp-server-atlassian-jira":      ".mcp",
	"mongodb-mcp-server":             ".mongodb",
}

// dataPaths returns the data folders of the server that the command starts. Many servers make one
// at their first start.
func dataPaths(l Launch, home string) []string {
	name := serverName(l)
	if name == "" || !filepath.IsAbs(home) {
		return nil
	}
	var paths []string
	for _, parent := range []string{".", ".config/", ".local/share/", ".local/state/"} {
		paths = append(paths, filepath.Join(home, parent+name))
	}
	if folder, ok := dataFolders[name]; ok {
		paths = append(paths, filepath.Join(home, folder))
	}
	return paths
}

// serverName returns the name of the server's package or program: desktop-commander of "npx -y
// @wonderwhy-er/desktop-commander@latest". A name must have a hyphen or "mcp" in it, so that a
// server cannot get ~/.config or ~/.vscode by its name.
func serverName(l Launch) string {
	for _, word := range append([]string{filepath.Base(l.Program)}, l.Args...) {
		if _, after, ok := strings.Cut("/"+word, "/node_modules/"); ok {
			word = strings.TrimPrefix(after, ".bin/")
		}
		if strings.HasPrefix(word, "@") {
			scope, name, _ := strings.Cut(word, "/")
			if word = name; strings.Trim(name, "mcp") == "" {
				word = strings.TrimPrefix(scope, "@") + "-mcp" // as of @playwright/mcp
			}
		}
		name, _, _ := strings.Cut(word, "/")
		name, _, _ = strings.Cut(name, "@")
		if len(name) > 2 && len(name) < 64 && name[0] != '-' &&
			(strings.Contains(name, "-") || strings.Contains(name, "mcp")) &&
			strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_-") == "" {
			return name
		}
	}
	return ""
}
