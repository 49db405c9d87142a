package policies

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/keys"
)

// Bounds of one bundle.
const (
	MaxBundle   = 16 << 20 // bytes, packed
	maxUnpacked = 64 << 20 // bytes of all its files
	maxFiles    = 10_000
)

// Key is what bundles are signed with: `opa sign`.
type Key struct {
	Algorithm string // RS256, ES256, PS256, HS256, or with 384 or 512
	Key       string // the public key as PEM; the secret of HS…
	Scope     string // what the signature has to say as its scope
}

// Signed says what bundles have to be signed with. With keys, one that is not signed, or otherwise than its files are, is refused; without, only one that is signed is, since nobody could
// say whether it is as it was.
type Signed struct {
	Keys map[string]Key
	By   string // the only one of Keys that will do; "" is the one that the signature names, or the only one that there is
}

// Verification is s for OPA's own readers; nil when there are no keys.
func (s Signed) Verification() *bundle.VerificationConfig {
	if len(s.Keys) == 0 && s.By == "" {
		return nil
	}
	known := map[string]*keys.Config{}
	by := s.By
	for name, k := range s.Keys {
		known[name] = &keys.Config{Key: k.Key, Algorithm: k.Algorithm, Scope: k.Scope}
		if len(s.Keys) == 1 {
			by = cmp.Or(by, name)
		}
	}
	return bundle.NewVerificationConfig(known, by, "", nil)
}

// Bundle is a bundle of OPA's, read and verified. It is immutable.
type Bundle struct {
	Name     string // how errors and the record call it
	Revision string // of its manifest; "" when it says none

	data    map[string]any
	modules []moduleFile
}

// moduleFile is one .rego file of a bundle.
type moduleFile struct {
	path string
	raw  []byte
}

// ReadBundle reads a .tar.gz. It is bounded, holds Rego and data alone (no delta, no WebAssembly), and is signed as it has to be; the error names it.
func ReadBundle(name string, raw []byte, signed Signed) (*Bundle, error) {
	fail := func(err error) (*Bundle, error) { return nil, fmt.Errorf("%s: %w", name, err) }
	verification := signed.Verification()
	isSigned, err := bounded(raw)
	switch {
	case err != nil:
		return fail(err)
	case isSigned && verification == nil:
		return fail(errors.New("it is signed, and nothing says by whom\nhint: name the key in [policy.key.NAME]"))
	}
	b, err := bundle.NewReader(bytes.NewReader(raw)).WithRegoVersion(ast.RegoV1).WithCapabilities(Capabilities()).WithProcessAnnotations(true).
		WithSizeLimitBytes(maxUnpacked).WithBundleVerificationConfig(verification).WithLazyLoadingMode(false).Read()
	switch {
	case err != nil:
		return fail(err)
	case b.Type() == bundle.DeltaBundleType:
		return fail(errors.New("it is a delta bundle, which changes another; Gatekit takes whole ones"))
	case len(b.WasmModules)+len(b.PlanModules) > 0:
		return fail(errors.New("it holds WebAssembly or a plan; Gatekit takes Rego\nhint: opa build without --target"))
	}
	out := &Bundle{Name: name, Revision: b.Manifest.Revision, data: b.Data}
	for _, m := range b.Modules {
		out.modules = append(out.modules, moduleFile{strings.TrimPrefix(path.Clean("/"+m.Path), "/"), m.Raw})
	}
	return out, nil
}

// bounded says whether a bundle has a signature, and why it is too large. OPA's reader bounds each file; of ten thousand that are all as large as they may be it would make as many.
func bounded(raw []byte) (isSigned bool, err error) {
	if len(raw) > MaxBundle {
		return false, fmt.Errorf("it is larger than %d bytes", MaxBundle)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return false, fmt.Errorf("it is no bundle (.tar.gz): %w", err)
	}
	archive, files, size := tar.NewReader(z), 0, int64(0)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return isSigned, nil
		}
		if err != nil {
			return false, fmt.Errorf("it is no bundle (.tar.gz): %w", err)
		}
		if files++; files > maxFiles {
			return false, fmt.Errorf("it holds more than %d files", maxFiles)
		}
		if size += h.Size; h.Size < 0 || size > maxUnpacked {
			return false, fmt.Errorf("it is larger than %d bytes when it is unpacked", maxUnpacked)
		}
		isSigned = isSigned || bundle.IsSignaturesFile(h.Name)
	}
}

// bundle takes in the bundle in a file.
func (s *sources) bundle(name string, signed Signed) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxBundle+1))
	if err != nil {
		return err
	}
	b, err := ReadBundle(name, raw, signed)
	if err != nil {
		return err
	}
	return s.take(b)
}

// take takes in a bundle.
func (s *sources) take(b *Bundle) error {
	s.bundles = append(s.bundles, b)
	faults := []error{s.merge(b.Name, b.data)}
	for _, m := range b.modules {
		if s.tests || !isTest(m.path) { // parsed again, so that its places name the bundle
			faults = append(faults, s.module(b.Name+":"+m.path, m.raw))
		}
	}
	return errors.Join(faults...)
}
