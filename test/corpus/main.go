package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := &cobra.Command{
		Use:   "corpus",
		Short: "Collect texts of published MCP servers, and measure false alarms with them",
		Long: `Corpus collects the definitions, READMEs and configuration files of MCP servers that
are published on npm. It measures what Gatekit's plugins and default rules do with them.

The recipe test/corpus/servers.tsv names the packages. Each belongs to one half: read the half
"tuning" while you improve a plugin, and run the half "heldout" for final figures only.`,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(collectCommand(), judgeCommand(), makersCommand(), pinsCommand(),
		releasesCommand(), sandboxCommand(), isolateCommand(), enterCommand(), serveCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}
