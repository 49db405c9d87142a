package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/fleet"
)

// verifyFleet verifies the logs of all replicas together, and prints one result for each.
func (o *verifyOptions) verifyFleet(cmd *cobra.Command, dir string) error {
	logs, err := fleet.Logs(dir)
	if err != nil {
		return err
	}
	keys, err := readKeys(o.key)
	if err != nil {
		return err
	}
	results, err := fleet.Verify(cmd.Context(), logs, fleet.Options{Keys: keys,
		Run: func(ctx context.Context, log fleet.Log, key note.Verifier,
			others []*audit.Checkpoint) (*audit.VerificationResult, []string, error) {
			return o.run(ctx, auditLog{file: log.File}, key, nil, others...)
		}})
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range results {
		if r.Status != fleet.OK {
			failed++
		}
	}
	out := cmd.OutOrStdout()
	if o.json {
		for _, r := range results {
			j := newVerificationJSON(r.File, r.Key, r.Done, r.Notes, r.Err)
			j.Replica, j.Status, j.Origin = r.Name, string(r.Status), r.Origin
			if err := printJSON(out, j); err != nil {
				return err
			}
		}
	} else if err := printFleet(out, results); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s failed", failed, plural(len(results), "audit log"))
	}
	if o.key == "" && !o.json {
		fmt.Fprintln(out, "The keys were read from beside the logs: keep copies elsewhere, and "+
			"name them with --key.")
	}
	return nil
}

// printFleet prints one line for each log, and more lines for what is wrong with it.
func printFleet(out io.Writer, results []fleet.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(status, name, text string) {
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(w, "%s\t%s\t%s\n", status, printable(name), printable(line))
			status, name = "", ""
		}
	}
	for _, r := range results {
		switch {
		case r.Err != nil:
			row(string(r.Status), r.Name, r.Err.Error())
		case r.Done.Last == 0:
			row(string(r.Status), r.Name, "no records yet")
		default:
			row(string(r.Status), r.Name, fmt.Sprintf("records %d to %d, %d in the checkpoint "+
				"signed by %s+%08x", r.Done.First, r.Done.Last, r.Done.Checkpoint.Size,
				r.Key.Name(), r.Key.KeyHash()))
		}
		for _, n := range r.Notes {
			row("", "", n)
		}
	}
	return w.Flush()
}

// readKeys returns public keys as lines NAME+ID+KEY. The parameter key is such a line, or the path
// of a file with one such line for each key, or "" for none.
func readKeys(key string) (keys []string, err error) {
	if key == "" {
		return nil, nil
	}
	text := key
	if _, err := note.NewVerifier(strings.TrimSpace(key)); err != nil {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, fmt.Errorf("read the public keys: %w\nhint: give a line NAME+ID+KEY, or a "+
				"file with one such line for each replica", err)
		}
		text = string(b)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := note.NewVerifier(line); err != nil {
			return nil, fmt.Errorf("read the public keys %s: %w\nhint: each line must be a key "+
				"NAME+ID+KEY, as gatekit audit key prints it", key, err)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no public key in %s", key)
	}
	return keys, nil
}
