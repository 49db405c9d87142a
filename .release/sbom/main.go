// Sbom writes what a binary of Gatekit consists of, as CycloneDX and as SPDX:
//
//	go run ./sbom BINARY NAME
//
// It writes NAME.cdx.json and NAME.spdx.json by means of syft, which reads the list of modules in
// the binary. Then it checks both files: each follows its JSON schema and has exactly the modules
// that "go version -m" lists for the binary. The same binary gives the same files: times and ids
// come from the binary, not from the clock.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/pkg/cataloger/golang"
	"github.com/anchore/syft/syft/sbom"
	"github.com/anchore/syft/syft/source"
	"github.com/anchore/syft/syft/source/filesource"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY NAME")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, name string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", binary, err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	id := uuid.NewHash(sha256.New(), uuid.Nil, content, 8).String()
	made, err := scan(binary, id, info)
	if err != nil {
		return fmt.Errorf("scan %s: %w", binary, err)
	}
	cdx, err := cyclonedxjson.NewFormatEncoderWithConfig(cyclonedxjson.EncoderConfig{
		Version: "1.6", Pretty: true})
	if err != nil {
		return err
	}
	spdx, err := spdxjson.NewFormatEncoderWithConfig(spdxjson.EncoderConfig{
		Version: "2.3", Pretty: true})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		file    string
		encoder sbom.FormatEncoder
		check   func([]byte, []module) error
	}{{name + ".cdx.json", cdx, checkCycloneDX}, {name + ".spdx.json", spdx, checkSPDX}} {
		var b bytes.Buffer
		if err := f.encoder.Encode(&b, *made); err != nil {
			return fmt.Errorf("write %s: %w", f.file, err)
		}
		text := reproducible(b.Bytes(), id, setting(info, "vcs.time"))
		if err := f.check(text, modules(info)); err != nil {
			return fmt.Errorf("check %s: %w", f.file, err)
		}
		if err := os.WriteFile(f.file, text, 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: follows its schema, and has the %d modules of the binary\n",
			filepath.Base(f.file), len(modules(info)))
	}
	return nil
}

// scan returns syft's list of the modules in a binary. The document names the binary by id.
func scan(binary, id string, info *buildinfo.BuildInfo) (*sbom.SBOM, error) {
	src, err := filesource.New(filesource.Config{Path: binary,
		Alias: source.Alias{Name: "gatekit", Version: info.Main.Version}})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	resolver, err := src.FileResolver(source.SquashedScope)
	if err != nil {
		return nil, err
	}
	packages, relationships, err := golang.NewGoModuleBinaryCataloger(
		golang.DefaultCatalogerConfig()).Catalog(context.Background(), resolver)
	// For binaries of macOS, syft reports that it cannot read settings of the cryptography, and returns
	// the modules. Whether they are complete is checked later.
	if err != nil && len(packages) == 0 {
		return nil, err
	}
	described := src.Describe()
	// The folder of the binary must not be in the documents.
	described.ID = id
	file, ok := described.Metadata.(source.FileMetadata)
	if !ok {
		return nil, fmt.Errorf("syft describes the binary by a %T", described.Metadata)
	}
	file.Path = filepath.Base(binary)
	described.Metadata = file
	return &sbom.SBOM{
		Artifacts:     sbom.Artifacts{Packages: pkg.NewCollection(packages...)},
		Relationships: relationships,
		Source:        described,
		Descriptor:    sbom.Descriptor{Name: "syft", Version: syftVersion()},
	}, nil
}

func syftVersion() string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}",
		"github.com/anchore/syft").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// reproducible replaces the random ids and the current time by the id of the binary and the time of
// its commit.
func reproducible(text []byte, id, time string) []byte {
	if time == "" {
		time = "1970-01-01T00:00:00Z"
	}
	for pattern, value := range map[string]string{
		`("serialNumber": "urn:uuid:)[^"]*"`:                    id,
		`("timestamp": ")[^"]*"`:                                time,
		`("created": ")[^"]*"`:                                  time,
		`("documentNamespace": "[^"]*-)[0-9a-f]{8}-[0-9a-f-]*"`: id,
	} {
		text = regexp.MustCompile(pattern).ReplaceAll(text, []byte("${1}"+value+`"`))
	}
	return text
}

// module is a module and its version, such as a line "dep" of "go version -m".
type module struct{ path, version string }

// modules returns the modules in the binary, the main module and the standard library.
func modules(info *buildinfo.BuildInfo) []module {
	all := []module{{info.Main.Path, info.Main.Version},
		{"stdlib", strings.Fields(info.GoVersion)[0]}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		all = append(all, module{d.Path, d.Version})
	}
	sortModules(all)
	return all
}

func sortModules(all []module) {
	slices.SortFunc(all, func(a, b module) int {
		return strings.Compare(a.path+"\x00"+a.version, b.path+"\x00"+b.version)
	})
}

func checkCycloneDX(text []byte, want []module) error {
	if err := checkSchema(text, "cyclonedx/cyclonedx.json"); err != nil {
		return err
	}
	var file struct {
		Components []struct{ Type, Name, Version string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	var got []module
	for _, c := range file.Components {
		if c.Type == "library" || c.Type == "application" {
			got = append(got, module{c.Name, c.Version})
		}
	}
	return compare(got, want)
}

func checkSPDX(text []byte, want []module) error {
	if err := checkSchema(text, "spdx-json/spdx-schema-2.3.json"); err != nil {
		return err
	}
	var file struct {
		Packages []struct {
			Name         string
			VersionInfo  string
			ExternalRefs []struct{ ReferenceType string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	var got []module
	for _, p := range file.Packages {
		for _, r := range p.ExternalRefs { // the package of the file itself has no purl
			if r.ReferenceType == "purl" {
				got = append(got, module{p.Name, p.VersionInfo})
			}
		}
	}
	return compare(got, want)
}

func compare(got, want []module) error {
	sortModules(got)
	if slices.Equal(got, want) {
		return nil
	}
	var errs []error
	for _, m := range want {
		if !slices.Contains(got, m) {
			errs = append(errs, fmt.Errorf("%s %s of the binary is missing", m.path, m.version))
		}
	}
	for _, m := range got {
		if !slices.Contains(want, m) {
			errs = append(errs, fmt.Errorf("%s %s is not in the binary", m.path, m.version))
		}
	}
	if errs == nil {
		errs = append(errs, fmt.Errorf("got %d modules, want %d", len(got), len(want)))
	}
	return errors.Join(errs...)
}

// checkSchema validates a document against a schema in the module of syft.
func checkSchema(text []byte, schema string) error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/anchore/syft").Output()
	if err != nil {
		return fmt.Errorf("find the schemas of syft: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(dir)), "schema", filepath.Dir(schema))
	c := jsonschema.NewCompiler()
	c.UseLoader(schemaFolder(folder))
	compiled, err := c.Compile("file:///" + filepath.Base(schema))
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(document)
}

// schemaFolder loads schemas from a folder by the last part of their URL, so nothing is fetched.
// syft's folder has no schemas for signatures in the document and for names of ciphers. A list of
// modules has neither, so these two schemas accept everything.
type schemaFolder string

// Load returns the schema of a URL.
func (f schemaFolder) Load(url string) (any, error) {
	name := filepath.Join(string(f), filepath.Base(url))
	switch filepath.Base(url) {
	case "jsf-0.82.schema.json", "cryptography-defs.schema.json":
		return map[string]any{"definitions": map[string]any{"signature": true,
			"algorithmFamiliesEnum": true, "ellipticCurvesEnum": true}}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return jsonschema.UnmarshalJSON(file)
}
