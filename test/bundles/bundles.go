// Package bundles builds bundles like `opa build`, with OPA's own writer and signer. It also
// modifies bundles, as an attacker would.
package bundles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
)

// Algorithm is the algorithm of the keys that NewKey generates.
const Algorithm = "ES256"

// Key is a key pair, as PEM.
type Key struct{ Private, Public string }

// NewKey generates a key pair.
func NewKey(t testing.TB) *Key {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return &Key{text("PRIVATE KEY", private), text("PUBLIC KEY", public)}
}

// Signature has the key and the claims with which a bundle is signed.
type Signature struct {
	Key   *Key
	ID    string // the key's name in the signature
	Scope string // the claim "scope"

	Claims map[string]any // further claims
}

// Build returns a bundle of .rego files and data.json. The map files has the content of each
// file by its path. If signature is nil, the bundle is unsigned.
func Build(t testing.TB, revision string, files map[string]string,
	signature *Signature) []byte {
	t.Helper()
	b := bundle.Bundle{Data: map[string]any{}}
	b.Manifest.Init()
	b.Manifest.Revision = revision
	b.Manifest.SetRegoVersion(ast.RegoV1)
	for name, text := range files {
		if path.Base(name) == "data.json" {
			if err := json.Unmarshal([]byte(text), &b.Data); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b.Modules = append(b.Modules, bundle.ModuleFile{URL: "/" + name, Path: "/" + name,
			RelativePath: "/" + name, Raw: []byte(text)})
	}
	if signature != nil {
		claims := filepath.Join(t.TempDir(), "claims.json")
		all := map[string]any{"scope": signature.Scope}
		maps.Copy(all, signature.Claims)
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(claims, text, 0o600); err != nil {
			t.Fatal(err)
		}
		config := bundle.NewSigningConfig(signature.Key.Private, Algorithm, claims)
		if err := b.GenerateSignature(config, signature.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).UseModulePath(true).DisableFormat(true).Write(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Rewrite returns a bundle with modified files. It calls change with the name and content of each
// file, and writes the name and content that change returns. If the returned name is empty, the
// file is removed. The last call has an empty name, so that change can return an additional file.
func Rewrite(t testing.TB, packed []byte, change func(name, text string) (string, string)) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	in, w := tar.NewReader(z), tar.NewWriter(zw)
	add := func(name, text string) {
		if name == "" {
			return
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600,
			Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		add(change(h.Name, string(text)))
	}
	add(change("", ""))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
