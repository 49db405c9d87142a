package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/audit/format"
	"gatekit/audit/query"
)

func (p *program) auditExport() *cobra.Command {
	var config, output string
	form := choice{format.JSONL, format.Names()}
	c := &cobra.Command{
		Use:   "export [FILE…]",
		Short: "Write records of the audit log in another format",
		Long: `Export writes the records that match the filters, in order, in one of these formats:

  jsonl   the unchanged lines of the log; on a terminal, unprintable characters are escaped
  ocsf    Open Cybersecurity Schema Framework 1.5.0: one JSON object per line
  csv     a table; no cell is run as a formula by a spreadsheet
  text    one readable line for each record

Export does not verify the log: "gatekit audit verify" does. To prove a record to others, use
"gatekit audit prove". In Gatekit's source, "go doc ./audit" describes the lines of the log, and
"go doc ./audit/format" describes the other formats.

` + filterHelp,
		Example: `  gatekit audit export --format csv --since 2026-11-01 --output november.csv
  gatekit audit export --format ocsf --action deny`,
	}
	read := filterFlags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		logs, filter, err := auditReader(cmd, &logSource{config: config, args: args}, read)
		if err != nil {
			return err
		}
		f, err := format.New(form.value, format.Options{Version: version(),
			EscapeUnprintable: output == "" && isTerminal(os.Stdout)})
		if err != nil {
			return err
		}
		if output == "" {
			return readError(export(cmd, cmd.OutOrStdout(), f, logs, filter))
		}
		out, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists already\nhint: name another file, or move it away",
				output)
		}
		if err != nil {
			return fmt.Errorf("write the records: %w", err)
		}
		if err = errors.Join(export(cmd, out, f, logs, filter), out.Close()); err != nil {
			// The incomplete file is removed, so that nobody uses it as a complete export.
			return errors.Join(readError(err), os.Remove(output))
		}
		return nil
	}
	configFlag(c, &config)
	c.Flags().Var(&form, "format", "the `format`: "+strings.Join(format.Names(), ", "))
	c.Flags().StringVarP(&output, "output", "o", "",
		"`file` to create (default: stdout)")
	return c
}

func export(cmd *cobra.Command, to io.Writer, f format.Encoder, logs []auditLog,
	filter *query.Filter) error {
	out := bufio.NewWriterSize(to, 64<<10)
	w := format.NewWriter(out, f, false)
	none := true
	for r, err := range mergedRecords(cmd.Context(), logs, filter) {
		if err == nil {
			none = false
			err = w.Write(r)
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if none {
		reportNoMatch(cmd)
	}
	return out.Flush()
}
