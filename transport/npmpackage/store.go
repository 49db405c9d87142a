package npmpackage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"gatekit/core/privatefiles"
	"gatekit/core/regularfile"
)

const (
	installTimeout  = 5 * time.Minute
	maxManifest     = 64 << 20 // bytes of package.json and package-lock.json
	maxInstallError = 4 << 10  // bytes at the end of npm's output that an error has
	integrityPrefix = "sha512-"
)

// Package is one release of an npm package.
type Package struct {
	Name      string
	Version   string // exact
	Integrity string // of the package in the registry: "sha512-" and base64
}

func (p Package) String() string { return p.Name + "@" + p.Version }

// Store is a folder with installed packages. Several processes may use it at the same time.
type Store struct {
	Dir string // absolute
	// Env holds variables for npm, beside those of Gatekit, such as npm_config_registry.
	Env []string
}

// Installed is an installed package.
type Installed struct {
	Package
	Dir string // the folder that the package and its dependencies are in
}

// ErrNotInstalled is the error of Find if the store does not have a package.
var ErrNotInstalled = errors.New("is not installed")

// ChangedError reports that an installed package is not as it was installed.
type ChangedError struct {
	Package Package
	Dir     string
	Reason  string // such as "node_modules/x/index.js has changed"
}

// Error returns the package, its folder and the reason.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("the package %s in %s is not as it was installed: %s", e.Package, e.Dir,
		e.Reason)
}

// place returns the folder of a package. Two releases with one version, as of two registries, have
// different folders.
func (s Store) place(p Package) string {
	sum := sha256.Sum256([]byte(p.Integrity))
	return filepath.Join(s.Dir, strings.ReplaceAll(p.Name, "/", "+")+"@"+p.Version+"-"+
		hex.EncodeToString(sum[:8]))
}

// treeName and sumsName are the entries of the folder of a package.
const (
	treeName = "tree"
	sumsName = "SHA256SUMS"
)

// Find returns an installed package whose files are as they were installed. The error wraps
// ErrNotInstalled, or is a *ChangedError.
func (s Store) Find(p Package) (*Installed, error) {
	if !packageName.MatchString(p.Name) || !exactVersion.MatchString(p.Version) ||
		!strings.HasPrefix(p.Integrity, integrityPrefix) {
		return nil, fmt.Errorf("the package %q with the version %q and the integrity %q is not a "+
			"release of the npm registry", p.Name, p.Version, p.Integrity)
	}
	place := s.place(p)
	i := &Installed{Package: p, Dir: filepath.Join(place, treeName)}
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the package %s %w on this machine", p, ErrNotInstalled)
	}
	reason, err := verify(i.Dir, filepath.Join(place, sumsName))
	if err == nil && reason == "" {
		if got, lockErr := i.locked(); lockErr != nil || got != p {
			reason = "its package-lock.json has another package"
		}
	}
	if err != nil {
		reason = err.Error()
	}
	if reason != "" {
		return nil, &ChangedError{p, place, reason}
	}
	return i, nil
}

// Install installs the release that a version, a range or a tag names; "" is the newest release.
// If the store has this release already, and it is as it was installed, Install keeps it. If want
// has an integrity, the release must be want.
func (s Store) Install(ctx context.Context, name, version string, want Package) (*Installed,
	error) {
	fail := func(err error) (*Installed, error) {
		return nil, fmt.Errorf("install the package %s: %w", strings.TrimSuffix(name+"@"+version,
			"@"), err)
	}
	if !packageName.MatchString(name) || version != "" && !packageVersion.MatchString(version) {
		return fail(errors.New("this is no name and version of the npm registry"))
	}
	folder := privatefiles.Folder{Path: s.Dir, Danger: "replace the programs of servers"}
	if err := folder.Create(); err != nil {
		return fail(err)
	}
	tmp, err := os.MkdirTemp(s.Dir, ".installing-")
	if err != nil {
		return fail(err)
	}
	defer remove(tmp)
	i := &Installed{Package: Package{Name: name}, Dir: filepath.Join(tmp, treeName)}
	if err := s.runNPM(ctx, i.Dir, strings.TrimSuffix(name+"@"+version, "@")); err != nil {
		return fail(err)
	}
	if i.Package, err = i.locked(); err != nil {
		return fail(err)
	}
	if exactVersion.MatchString(version) && i.Version != version {
		return fail(fmt.Errorf("npm has installed the version %s", i.Version))
	}
	if want.Integrity != "" && i.Package != want {
		return fail(fmt.Errorf("the registry has another package than the lock file: %s with the "+
			"integrity %s, not %s\nhint: find out why before you approve it: the version was "+
			"published again, or npm uses another registry", i.Package, i.Integrity,
			want.Integrity))
	}
	if _, err := i.Program(""); errors.As(err, new(*programError)) {
		return fail(err)
	}
	if err := seal(i.Dir, filepath.Join(tmp, sumsName)); err != nil {
		return fail(err)
	}
	if err := s.keep(tmp, i.Package); err != nil {
		return fail(err)
	}
	return s.Find(i.Package)
}

// keep moves an installed package to its place, unless the same package is there.
func (s Store) keep(tmp string, p Package) error {
	lock, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", s.Dir, err)
	}
	if _, err := s.Find(p); err == nil {
		return nil
	}
	place := s.place(p)
	if _, err := os.Lstat(place); err == nil {
		// A server may have written its data into its package.
		if err := remove(place + ".replaced"); err != nil {
			return err
		}
		if err := os.Rename(place, place+".replaced"); err != nil {
			return err
		}
	}
	return os.Rename(tmp, place)
}

// runNPM installs one package into dir, without running any scripts.
func (s Store) runNPM(ctx context.Context, dir, spec string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	manifest := filepath.Join(dir, "package.json")
	if err := os.WriteFile(manifest, []byte("{\"private\":true}\n"), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout,
		fmt.Errorf("npm has not finished within %s", installTimeout))
	defer cancel()
	// Each option that matters is given, so that the user's .npmrc cannot change it.
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--save-exact",
		"--save-prod", "--omit=dev", "--no-bin-links", "--package-lock", "--no-package-lock-only",
		"--no-dry-run", "--no-global", "--no-audit", "--no-fund", "--no-progress",
		"--prefix="+dir, "--", spec)
	npm.Dir = dir
	npm.Env = append(os.Environ(), s.Env...)
	npm.WaitDelay = time.Second
	out, err := npm.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		text := strings.ToValidUTF8(string(out[max(0, len(out)-maxInstallError):]), "")
		return fmt.Errorf("npm install: %w\n%s", err, strings.TrimSpace(text))
	}
	return nil
}

// locked returns the package as package-lock.json has it. It checks that npm knows a digest of
// every package that it has installed.
func (i *Installed) locked() (Package, error) {
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			Link      bool   `json:"link"`
			InBundle  bool   `json:"inBundle"` // it is a part of the package around it
		} `json:"packages"`
	}
	b, err := regularfile.Read(filepath.Join(i.Dir, "package-lock.json"), maxManifest)
	if err == nil {
		err = json.Unmarshal(b, &lock)
	}
	if err != nil {
		return Package{}, fmt.Errorf("read what npm has installed: %w", err)
	}
	for at, p := range lock.Packages {
		if at != "" && !p.InBundle && (p.Link || p.Integrity == "") {
			return Package{}, fmt.Errorf("the dependency %s is not from a registry, so npm cannot "+
				"check it", strings.TrimPrefix(at, "node_modules/"))
		}
	}
	main := lock.Packages["node_modules/"+i.Name]
	if !strings.HasPrefix(main.Integrity, integrityPrefix) ||
		!exactVersion.MatchString(main.Version) {
		return Package{}, fmt.Errorf("the registry has no SHA-512 of it: version %q, integrity %q",
			main.Version, main.Integrity)
	}
	return Package{i.Name, main.Version, main.Integrity}, nil
}

// programError reports that a package has no program that Node can run.
type programError struct{ text string }

func (e *programError) Error() string { return e.text }

// Program returns the path of a program of the package, for node. If bin is "", it is the only
// program, or the one with the name of the package, as npx does.
func (i *Installed) Program(bin string) (string, error) {
	var manifest struct {
		Bin jsontext.Value `json:"bin"`
	}
	root := filepath.Join(i.Dir, "node_modules", filepath.FromSlash(i.Name))
	b, err := regularfile.Read(filepath.Join(root, "package.json"), maxManifest)
	if err == nil {
		err = json.Unmarshal(b, &manifest)
	}
	if err != nil {
		return "", fmt.Errorf("read the package.json of %s: %w", i.Package, err)
	}
	bins := map[string]string{}
	own := path.Base(i.Name)
	if manifest.Bin.Kind() == '"' {
		var file string
		err = json.Unmarshal(manifest.Bin, &file)
		bins[own] = file
	} else if len(manifest.Bin) > 0 {
		err = json.Unmarshal(manifest.Bin, &bins)
	}
	if err != nil {
		return "", fmt.Errorf("read the programs of %s: %w", i.Package, err)
	}
	file, found := bins[bin]
	if bin == "" {
		if file, found = bins[own]; !found {
			files := map[string]bool{}
			for _, f := range bins {
				file, files[f] = f, true
			}
			found = len(files) == 1
		}
	}
	switch {
	case !found && bin != "":
		return "", &programError{fmt.Sprintf("%s has no program %q", i.Package, bin)}
	case !found:
		return "", &programError{fmt.Sprintf("%s has no program, or several and none with its name",
			i.Package)}
	case !filepath.IsLocal(file):
		return "", &programError{fmt.Sprintf("the program %q of %s is not in the package", file,
			i.Package)}
	}
	program := filepath.Join(root, file)
	return program, isForNode(program)
}

// isForNode returns an error if a program is not a script for Node.
func isForNode(program string) error {
	f, err := regularfile.Open(program)
	if err != nil {
		return &programError{err.Error()}
	}
	defer f.Close()
	head := make([]byte, 128)
	n, _ := f.Read(head)
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	if strings.HasPrefix(line, "#!") && !strings.Contains(line, "node") ||
		strings.HasPrefix(line, "\x7fELF") {
		return &programError{filepath.Base(program) + " is not a script for Node"}
	}
	return nil
}
