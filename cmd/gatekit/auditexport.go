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
	var config, output, fleetDir string
	form := choice{format.JSONL, format.Names()}
	c := &cobra.Command{
		Use:   "export [FILE…]",
		Short: "Write records of the audit log in another format",
		Long: `Export writes the records that match the filters, in order, in one of these formats:

  jsonl   the unchanged lines of the log; on a terminal, unprintable characters are escaped
  ocsf    Open Cybersecurity Schema Framework 1.5.0: one JSON object per line
  csv     a table; no cell is run as a formula by a spreadsheet
  text    one readable line for each record

With --fleet, or with FILEs in several folders, export merges the logs of several replicas by time.
In csv, the last column is then the replica; in ocsf, it is in unmapped; in text, a record has the
number REPLICA:SEQ. A line of jsonl is unchanged, and does not name the replica.

Export does not verify the log: "gatekit audit verify" does. To prove a record to others, use
"gatekit audit prove". In Gatekit's source, "go doc ./audit" describes the lines of the log, and
"go doc ./audit/format" describes the other formats.

` + filterHelp,
		Example: `  gatekit audit export --format csv --since 2026-11-01 --output november.csv
  gatekit audit export --format ocsf --action deny
  gatekit audit export --format csv --fleet /srv/audit`,
	}
	read := filterFlags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		logs, filter, err := auditReader(cmd, &logSource{config, args, fleetDir}, read)
		if err != nil {
			return err
		}
		f := func(replica string) (format.Encoder, error) {
			return format.New(form.value, format.Options{Version: version(), Replica: replica,
				EscapeUnprintable: output == "" && isTerminal(os.Stdout)})
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
	fleetFlag(c, &fleetDir)
	c.Flags().Var(&form, "format", "the `format`: "+strings.Join(format.Names(), ", "))
	c.Flags().StringVarP(&output, "output", "o", "",
		"`file` to create (default: stdout)")
	return c
}

// export writes the records of the logs. The encoder depends on the replica of a log.
func export(cmd *cobra.Command, to io.Writer, encoder func(replica string) (format.Encoder, error),
	logs []auditLog, filter *query.Filter) error {
	out := bufio.NewWriterSize(to, 64<<10)
	writers := map[string]*format.Writer{} // by replica
	for r, err := range mergedRecords(cmd.Context(), logs, filter) {
		if err == nil && writers[r.replica] == nil {
			var f format.Encoder
			f, err = encoder(r.replica)
			writers[r.replica] = format.NewWriter(out, f, len(writers) > 0)
		}
		if err == nil {
			err = writers[r.replica].Write(r.Record)
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if len(writers) == 0 {
		reportNoMatch(cmd)
	}
	return out.Flush()
}
