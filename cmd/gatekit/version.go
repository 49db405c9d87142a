package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/mcp"
)

func (p *program) version() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, the Go release, and the MCP revisions",
		Long: `Version prints the facts that a bug report needs: the version and commit, the Go
release, the platform, and the MCP revisions that Gatekit supports on both sides.

The commit is known if Go built Gatekit from its Git repository. It is "dirty" if files of the
working tree differed from the commit.`,
		Example: `  gatekit version
  gatekit version --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			b := newBuild(info)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), b)
			}
			return b.write(cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// build describes the running binary.
type build struct {
	Version  string `json:"version"` // of the module, or "(devel)"
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit, RFC 3339
	Dirty    bool   `json:"dirty"`          // files of the working tree differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Revisions are the MCP revisions, the newest first.
	Revisions []string `json:"mcp"`
}

// newBuild describes the binary that info is about. info may be nil.
func newBuild(info *debug.BuildInfo) build {
	b := build{Version: "(devel)", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Revisions: []string{mcp.Rev20260728, mcp.Rev20251125, mcp.Rev20250618, mcp.Rev20250326,
			mcp.Rev20241105}}
	if info == nil {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
	return b
}

func (b build) write(w io.Writer) error {
	commit := ""
	if b.Commit != "" {
		commit = fmt.Sprintf("commit %s, %s", b.Commit, b.Time)
		if b.Dirty {
			commit += ", dirty"
		}
		commit += "\n"
	}
	_, err := fmt.Fprintf(w, "gatekit %s\n%s%s %s\nMCP %s\n", b.Version, commit, b.Go, b.Platform,
		strings.Join(b.Revisions, " "))
	return err
}

// version returns the version of the module, or of the commit from which it was built.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return newBuild(info).Version
}
