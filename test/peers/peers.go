// Package peers provides the programs that tests use. These are the real servers and clients that
// test/package.json, test/servers/package.json and test/clients/package.json pin, the packages of
// the TypeScript example, the go-sdk's conformance server and clients (tools of go.mod), and the
// gatekit binary, which is built from the working tree. An OpenTelemetry collector and an OpenID
// provider are built from modules of their own.
//
// Tests install the npm packages that they need into the user's cache folder. Each version of a
// package-lock.json has one folder, which all test packages share. If Node, npm or the registry is
// missing, a test that needs it is skipped with the reason. With GATEKIT_TEST_REQUIRE=1 in the
// environment, which .ci/run sets, such a test fails instead. With -short it is always skipped.
package peers

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Python skips the test unless the programs and packages that examples/plugin-python needs are
// installed.
func Python(t testing.TB) {
	t.Helper()
	const packages = "Debian: apt-get install python3-grpcio protobuf-compiler-grpc"
	for _, tool := range []string{"protoc", "grpc_python_plugin"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, fmt.Errorf("%s is not installed (%s)", tool, packages))
		}
	}
	if out, err := exec.Command("/usr/bin/python3",
		"-c", "import grpc, google.protobuf").CombinedOutput(); err != nil {
		missing(t, fmt.Errorf("/usr/bin/python3 has no gRPC (%s): %w\n%s", packages, err, out))
	}
}

// Installed skips the test unless all programs are installed.
func Installed(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, fmt.Errorf("%s is not installed: %w", name, err))
		}
	}
}

// Collector builds the OpenTelemetry collector of test/collector and returns its path. If the build
// fails, for example because its modules cannot be fetched, the test is skipped.
func Collector(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: builds an OpenTelemetry collector")
	}
	binary := filepath.Join(t.TempDir(), "collector")
	build := exec.Command("go", "build", "-o", binary)
	build.Dir = filepath.Join(Top(), "test", "collector")
	if out, err := build.CombinedOutput(); err != nil {
		missing(t, fmt.Errorf("the OpenTelemetry collector cannot be built: %w\n%s", err, out))
	}
	return binary
}

// OpenIDProvider builds the provider of test/openidprovider, which needs no Node, and returns its
// path. If the build fails, for example because its modules cannot be fetched, the test is skipped.
func OpenIDProvider(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: builds an OpenID provider")
	}
	path, err := openIDProvider()
	if err != nil {
		missing(t, fmt.Errorf("the OpenID provider cannot be built: %w", err))
	}
	return path
}

var openIDProvider = sync.OnceValues(func() (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "openidprovider")
	_, err = run("go", "build", "-C", filepath.Join("test", "openidprovider"), "-o", path)
	return path, err
})

// Witness builds the witness that test/witness pins, cmd/omniwitness of transparency-dev/witness,
// and returns its path. If the build fails, for example because its modules cannot be fetched, the
// test is skipped.
func Witness(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: builds a witness")
	}
	binary := filepath.Join(t.TempDir(), "omniwitness")
	build := exec.Command("go", "build", "-o", binary,
		"github.com/transparency-dev/witness/cmd/omniwitness")
	build.Dir = filepath.Join(Top(), "test", "witness")
	if out, err := build.CombinedOutput(); err != nil {
		missing(t, fmt.Errorf("the witness cannot be built: %w\n%s", err, out))
	}
	return binary
}

// Modules is a folder in which npm ci has made a node_modules.
type Modules struct{ dir string }

// Node returns the npm packages of test/package.json. It installs them first if needed.
func Node(t testing.TB) Modules {
	t.Helper()
	return modules(t, node)
}

// Published returns the published servers that test/servers/package.json pins. It installs them
// first if needed.
func Published(t testing.TB) Modules {
	t.Helper()
	return modules(t, published)
}

// Clients returns the published clients that test/clients/package.json pins: Claude Code, Codex and
// Gemini CLI. It installs them first if needed; they take 1 GB.
func Clients(t testing.TB) Modules {
	t.Helper()
	return modules(t, clients)
}

// TypeScript returns the npm packages of examples/plugin-typescript. It installs them first if
// needed.
func TypeScript(t testing.TB) Modules {
	t.Helper()
	return modules(t, typescript)
}

func modules(t testing.TB, install func() (string, error)) Modules {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: needs npm packages")
	}
	dir, err := install()
	if err != nil {
		missing(t, err)
	}
	return Modules{dir}
}

// missing skips a test because of err. With GATEKIT_TEST_REQUIRE=1 it fails the test instead.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("GATEKIT_TEST_REQUIRE") == "1" {
		t.Fatalf("GATEKIT_TEST_REQUIRE=1, but %v", err)
	}
	t.Skipf("skipped: %v", err)
}

// Path returns the path of a file in node_modules.
func (m Modules) Path(elem ...string) string {
	return filepath.Join(append([]string{m.dir, "node_modules"}, elem...)...)
}

// Server returns the command of a pinned @modelcontextprotocol/server-* package over stdio, without
// its arguments.
func (m Modules) Server(name string) []string {
	return []string{"node", m.Path("@modelcontextprotocol", "server-"+name, "dist", "index.js")}
}

// Inspector returns the command of the MCP Inspector; the caller adds "--cli".
func (m Modules) Inspector() []string { return []string{"node", m.Path(".bin", "mcp-inspector")} }

var (
	node       = sync.OnceValues(func() (string, error) { return install("test") })
	published  = sync.OnceValues(func() (string, error) { return install("test/servers") })
	clients    = sync.OnceValues(func() (string, error) { return install("test/clients") })
	typescript = sync.OnceValues(func() (string, error) {
		return install("examples/plugin-typescript")
	})
)

// install installs the packages of the package-lock.json in folder, and returns the path of the
// folder with these packages. The parameter folder is relative to the top of the repository.
func install(folder string) (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed", tool)
		}
	}
	lock, err := os.ReadFile(filepath.Join(Top(), folder, "package-lock.json"))
	if err != nil {
		return "", err
	}
	pkg, err := os.ReadFile(filepath.Join(Top(), folder, "package.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(pkg, lock...))
	dir := filepath.Join(cache, "gatekit-test", hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(dir + ".lock").Lock() // test packages run at the same time
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	err = errors.Join(os.WriteFile(filepath.Join(tmp, "package.json"), pkg, 0o644),
		os.WriteFile(filepath.Join(tmp, "package-lock.json"), lock, 0o644))
	if err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = tmp
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci of %s/package-lock.json: %v\n%s", folder, err, out)
	}
	return dir, os.Rename(tmp, dir) // so that dir never holds half an installation
}

// Tool builds a tool of go.mod (everything-server, everything-client, listfeatures) and returns the
// path of a copy. The copy is needed because the file in Go's cache cannot run while another
// process builds that file again.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := tools.copy(name)
	if err != nil {
		t.Fatalf("build the tool %s: %v", name, err)
	}
	return path
}

// tools holds the copies that this process has made.
var tools copies

type copies struct {
	mu   sync.Mutex
	made map[string]string // path of each copy, by the tool's name
}

func (c *copies) copy(name string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if path, ok := c.made[name]; ok {
		return path, nil
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	out, err := run("go", "tool", "-n", name)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(strings.TrimSpace(out))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		return "", err
	}
	if c.made == nil {
		c.made = map[string]string{}
	}
	c.made[name] = path
	return path, nil
}

// Gatekit builds the gatekit binary from the tree and returns its path. The binary has the race
// detector if the test binary has it.
func Gatekit(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatalf("build gatekit: %v", err)
	}
	return path
}

// folder returns the folder for the binaries that this process builds; Run removes it.
var folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "gatekit-test-") })

// build returns the path of gatekit in Go's build cache. go run puts it there, so that only the
// first of the test packages has to link it. In place of running the binary, echo prints its path.
// The run that links the binary prints a temporary path. So build asks again.
var build = sync.OnceValues(func() (string, error) {
	args := []string{"run", "-exec", "echo"}
	if race {
		args = append(args, "-race")
	}
	var path string
	for range 2 {
		out, err := run("go", append(args, "gatekit/cmd/gatekit")...)
		if err != nil {
			return "", err
		}
		path = strings.TrimSpace(out)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("go run does not keep the binary %s in the build cache", path)
})

// M is a testing.M that removes the built binaries when the tests have run.
type M struct{ *testing.M }

// Run runs the tests as testing.M does, and then removes the built binaries.
func (m M) Run() int {
	defer func() {
		if dir, err := folder(); err == nil {
			os.RemoveAll(dir)
		}
	}()
	return m.M.Run()
}

// Top returns the top folder of the repository.
func Top() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// GoEnv returns the variables of Go's environment that a script needs for a build if its HOME is
// another folder.
func GoEnv(t testing.TB) map[string]string {
	t.Helper()
	vars := map[string]string{}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOFLAGS"} {
		value, err := run("go", "env", name)
		if err != nil {
			t.Fatalf("read %s from go env: %v", name, err)
		}
		vars[name] = strings.TrimSpace(value)
	}
	return vars
}

func run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = Top()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
	}
	return string(out), nil
}
