// Packages builds a package of Debian or of RPM by means of nfpm:
//
//	go run ./packages CONFIGURATION FILE
//
// The end of FILE, .deb or .rpm, says which. Variables in the configuration are those of the
// environment. The times in the package are SOURCE_DATE_EPOCH, so the same files give the same
// package.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: packages CONFIGURATION FILE")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "packages: build %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}

func build(configuration, file string) (err error) {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the commit: %w", err)
	}
	text, err := os.ReadFile(configuration)
	if err != nil {
		return err
	}
	missing := ""
	config, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string {
		value := os.Getenv(name)
		if value == "" {
			missing += " " + name
		}
		return value
	})))
	if missing != "" {
		return fmt.Errorf("%s needs the variables%s", configuration, missing)
	}
	if err != nil {
		return err
	}
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	info.MTime = time.Unix(epoch, 0).UTC()
	for _, c := range info.Contents {
		if c.FileInfo == nil {
			return fmt.Errorf("%s has no mode in %s", c.Destination, configuration)
		}
		c.FileInfo.MTime = info.MTime
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return packager.Package(info, out)
}
