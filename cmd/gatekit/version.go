package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/mcp"
)

func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the Go release, and the MCP revisions",
		Long: `Version prints the facts that a bug report needs: the version and commit, the Go
release, the platform, and the MCP revisions that Gatekit supports on both sides.`,
		Example: `  gatekit version`,
		Args:    noArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			revisions := []string{mcp.Rev20260728, mcp.Rev20251125, mcp.Rev20250618,
				mcp.Rev20250326, mcp.Rev20241105}
			fmt.Fprintf(cmd.OutOrStdout(), "gatekit %s\n%s %s/%s\nMCP %s\n", version(),
				runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(revisions, " "))
		},
	}
}

// version returns the version of the module, or of the commit from which it was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
