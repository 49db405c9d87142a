// Unpack writes the files of an image in an OCI layout to a folder:
//
//	go run ./unpack LAYOUT ARCHITECTURE FOLDER
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: unpack LAYOUT ARCHITECTURE FOLDER")
		os.Exit(2)
	}
	if err := unpack(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "unpack: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func unpack(folder, arch, target string) error {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return err
	}
	if err := validate.Index(index); err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		if m.Platform == nil || !m.Platform.Satisfies(v1.Platform{OS: "linux", Architecture: arch}) {
			continue
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		files := mutate.Extract(image)
		defer files.Close()
		tar := exec.Command("tar", "-C", target, "-xpf", "-")
		tar.Stdin, tar.Stderr = files, os.Stderr
		return tar.Run()
	}
	return errors.New("there is no image for linux/" + arch)
}
