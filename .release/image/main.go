// Image writes a container image of Gatekit as an OCI layout:
//
//	go run ./image [-rootfs TAR] LAYOUT BINARIES
//
// BINARIES is the folder that .release/build wrote. The image has a manifest for each Linux binary
// in it. Without -rootfs, it has one layer: the binary, the certificates of public authorities,
// and empty folders. There is no shell, and nothing else to run. With -rootfs, the root file system
// in this archive is the layer below, for the architecture that runs here only.
//
// The same binaries give the same image: all times are SOURCE_DATE_EPOCH.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the number of the user and of the group in the image: nonroot of distroless images.
const user = 65532

func main() {
	rootfs := flag.String("rootfs", "", "archive of the root file system below Gatekit")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: image [-rootfs TAR] LAYOUT BINARIES")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), flag.Arg(1), *rootfs); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(folder, binaries, rootfs string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the commit: %w", err)
	}
	at := time.Unix(epoch, 0).UTC()
	architectures := []string{"amd64", "arm64"}
	if rootfs != "" {
		architectures = []string{runtime.GOARCH}
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := 0
	for _, arch := range architectures {
		binary, err := os.ReadFile(filepath.Join(binaries, "linux_"+arch, "gatekit"))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		image, err := makeImage(arch, binary, rootfs, at)
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", arch, err)
		}
		found++
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if found == 0 {
		return fmt.Errorf("%s has no binary for Linux", binaries)
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if _, err := layout.Write(folder, index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d platforms, %s\n", filepath.Base(folder), found, digest)
	return nil
}

func makeImage(arch string, binary []byte, rootfs string, at time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	var layers []v1.Layer
	files := []file{
		{"usr/", 0o755, 0, nil}, {"usr/bin/", 0o755, 0, nil},
		{"usr/bin/gatekit", 0o755, 0, binary},
		{"etc/", 0o755, 0, nil}, {"etc/gatekit/", 0o755, 0, nil},
		{"var/", 0o755, 0, nil}, {"var/lib/", 0o755, 0, nil},
		{"var/lib/gatekit/", 0o700, user, nil},
	}
	if rootfs != "" {
		base, err := tarball.LayerFromFile(rootfs, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		layers = append(layers, base)
	} else {
		names := fmt.Sprintf("root:x:0:0:root:/root:/sbin/nologin\n"+
			"gatekit:x:%d:%d:gatekit:/var/lib/gatekit:/sbin/nologin\n", user, user)
		files = append(files, file{"tmp/", 0o1777, 0, nil},
			file{"etc/passwd", 0o644, 0, []byte(names)},
			file{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\ngatekit:x:%d:\n", user)},
			file{"etc/ssl/", 0o755, 0, nil}, file{"etc/ssl/certs/", 0o755, 0, nil},
			file{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, certificates()})
	}
	top, err := layer(files, at)
	if err != nil {
		return nil, err
	}
	image, err = mutate.AppendLayers(image, append(layers, top)...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: at}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		WorkingDir: "/var/lib/gatekit",
		Entrypoint: []string{"/usr/bin/gatekit"},
		Cmd:        []string{"run", "--config", "/etc/gatekit/gatekit.toml"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=/var/lib/gatekit", "XDG_STATE_HOME=/var/lib"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Gatekit",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  os.Getenv("VERSION"),
			"org.opencontainers.image.revision": os.Getenv("COMMIT"),
			"org.opencontainers.image.source":   os.Getenv("HOMEPAGE"),
		},
	}
	return mutate.ConfigFile(image, config)
}

// file is an entry of a layer. A name that ends with a slash is a folder.
type file struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

func layer(files []file, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// certificates returns the authorities that Mozilla trusts, as PEM. Authorities that Mozilla trusts
// only under conditions are left out, because PEM cannot express conditions.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}
