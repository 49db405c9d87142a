package pins

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatekit/test/peers"
)

// npmRegistry is an npm registry with the package @acme/box: a server over stdio whose tool "where"
// returns the path of the server. Its tests are offline. Each release is one version.
type npmRegistry struct {
	*testing.T
	url string

	mu       sync.Mutex
	releases map[string][]byte // tarballs by version
	latest   string
	script   string // that npm would run when it installs the package
}

// boxServer is the program of @acme/box. COLOR is replaced by a word of the release.
const boxServer = `#!/usr/bin/env node
const send = (id, result) =>
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
const text = (t) => ({ content: [{ type: "text", text: t }] });
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  if (method === "initialize")
    send(id, {
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name: "box", version: "1" },
    });
  else if (method === "tools/list")
    send(id, {
      tools: [{ name: "where", description: "Says where, in COLOR.",
        inputSchema: { type: "object" } }],
    });
  else if (method === "tools/call") {
    try {
      if (params.arguments.write)
        require("fs").writeFileSync(__dirname + "/data.json", "{}");
      send(id, text(process.argv.slice(1).join(" ")));
    } catch (e) {
      send(id, text(e.code));
    }
  } else
    console.log(JSON.stringify({ jsonrpc: "2.0", id,
      error: { code: -32601, message: "no" } }));
});
`

// newNPMRegistry starts a registry without a release. npm uses it for the rest of the test.
func newNPMRegistry(t *testing.T) *npmRegistry {
	t.Helper()
	peers.Installed(t, "node", "npm")
	if testing.Short() {
		t.Skip("left out by -short: runs npm")
	}
	r := &npmRegistry{T: t, releases: map[string][]byte{}}
	web := httptest.NewServer(r)
	t.Cleanup(web.Close)
	r.url = web.URL
	t.Setenv("npm_config_registry", r.url)
	t.Setenv("npm_config_cache", t.TempDir())
	t.Setenv("npm_config_fetch_retries", "0")
	t.Setenv("npm_config_update_notifier", "false")
	newState(t)
	return r
}

// newState makes a new state folder. The packages in it are read-only until the test ends.
func newState(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	t.Cleanup(func() {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(path, 0o700)
			}
			return err
		})
	})
}

// publish publishes a release, or replaces it.
func (r *npmRegistry) publish(version, color string) {
	r.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package.json", fmt.Sprintf(`{"name":"@acme/box","version":%q,"bin":"box.js",`+
			`"scripts":{"preinstall":%q,"install":%[2]q,"postinstall":%[2]q}}`, version,
			r.script)},
		{"box.js", strings.Replace(boxServer, "COLOR", color, 1)},
	} {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + f[0], Mode: 0o755,
			Size: int64(len(f[1]))}); err != nil {
			r.Fatal(err)
		}
		w.Write([]byte(f[1]))
	}
	w.Close()
	z.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releases[version], r.latest = b.Bytes(), version
}

// integrity returns the digest of a release, as npm writes it.
func (r *npmRegistry) integrity(version string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha512.Sum512(r.releases[version])
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// close makes every request fail from now on.
func (r *npmRegistry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releases = nil
}

// ServeHTTP implements http.Handler.
func (r *npmRegistry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	version, isTarball := strings.CutPrefix(request.URL.Path, "/tarballs/")
	if isTarball {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.Write(r.releases[version])
		return
	}
	r.mu.Lock()
	var versions []string
	latest := r.latest
	for v := range r.releases {
		versions = append(versions, v)
	}
	r.mu.Unlock()
	if len(versions) == 0 || request.URL.EscapedPath() != "/@acme%2fbox" {
		http.NotFound(w, request)
		return
	}
	var list []string
	for _, v := range versions {
		list = append(list, fmt.Sprintf(`%q:{"name":"@acme/box","version":%[1]q,"bin":"box.js",`+
			`"hasInstallScript":true,"dist":{"tarball":%[2]q,"integrity":%[3]q}}`, v,
			r.url+"/tarballs/"+v, r.integrity(v)))
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"name":"@acme/box","dist-tags":{"latest":%q},"versions":{%s}}`, latest,
		strings.Join(list, ","))
}
