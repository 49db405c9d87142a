package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"gatekit/core/pins"
)

// consecutive is the recipe of the repository for the command releases.
//
//go:embed releases.tsv
var consecutive []byte

// releasesCommand shows how pins classify the changes between releases.
func releasesCommand() *cobra.Command {
	o := binaryOptions{places: places{committed: consecutive}}
	var show bool
	c := &cobra.Command{
		Use:   "releases --to DIR",
		Short: "Pin releases of servers, and count the changes of the next release by class",
		Long: `Releases installs consecutive versions of packages. It pins each version with gatekit
pin, and compares the next one with gatekit pin verify. The servers are started as npx -y PACKAGE
starts them, so the command line does not change.

By default, the recipe is test/corpus/releases.tsv. It has the versions of a package in their
order.`,
		Example: `  go run ./test/corpus releases --to ~/corpus --show`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			entries, err := o.prepare(c.Context())
			if err != nil {
				return err
			}
			defer os.RemoveAll(o.work)
			before, after := releasePairs(entries)
			outcomes := make([][]pinChange, len(after))
			failed := make([]bool, len(after))
			_, err = o.each(c.Context(), c.ErrOrStderr(), after,
				func(ctx context.Context, i int) (string, error) {
					changes, err := o.compareReleases(ctx, before[i], after[i])
					outcomes[i], failed[i] = changes, err != nil
					return fmt.Sprintf("%d changes since %s", len(changes), before[i].version), err
				})
			if err != nil {
				return err
			}
			return reportReleases(c.OutOrStdout(), before, after, outcomes, failed, show)
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&show, "show", false, "print the changes, too")
	return c
}

// releasePairs returns the entries that follow another version of the same package, and the entries
// before them.
func releasePairs(entries []entry) (before, after []entry) {
	for i, e := range entries {
		if i > 0 && entries[i-1].pkg == e.pkg {
			before, after = append(before, entries[i-1]), append(after, e)
		}
	}
	return before, after
}

// compareReleases pins one version of a server, and returns the changes of another version.
func (o *binaryOptions) compareReleases(ctx context.Context, before, after entry) ([]pinChange,
	error) {
	dir, err := os.MkdirTemp(o.work, "r-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := surroundings{folder: dir}
	s.env = s.variables(before, s.working())
	if err := s.makeFolders(); err != nil {
		return nil, err
	}
	npx := filepath.Join(dir, "npx")
	config := s.toml([]string{npx, "-y", before.pkg}, dir)
	if err := os.WriteFile(s.config(), []byte(config), 0o600); err != nil {
		return nil, err
	}
	for _, e := range []entry{before, after} {
		command, err := o.command(ctx, e, s.working())
		if err != nil {
			return nil, err
		}
		for i, word := range command {
			command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		script := "#!/bin/sh\nexec " + strings.Join(command, " ") + "\n"
		if err := os.WriteFile(npx, []byte(script), 0o700); err != nil {
			return nil, err
		}
		if e.version == before.version {
			if out, err := o.gatekit(ctx, dir, "pin", "--yes", "--config", s.config()); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", e.version, err, out)
			}
		}
	}
	return o.verify(ctx, dir, s.config())
}

// reportReleases writes the number of releases and of changes, by package and class.
func reportReleases(out io.Writer, before, after []entry, outcomes [][]pinChange, failed []bool,
	show bool) error {
	type row struct{ releases, quiet, held int }
	rows, counts := map[string]*row{}, map[string]map[string]int{}
	add := func(pkg string, i int) {
		if rows[pkg] == nil {
			rows[pkg], counts[pkg] = &row{}, map[string]int{}
		}
		r := rows[pkg]
		r.releases++
		isHeld := false
		for _, c := range outcomes[i] {
			counts[pkg][c.Class]++
			isHeld = isHeld || c.HeldBack
		}
		if isHeld {
			r.held++
		} else {
			r.quiet++
		}
	}
	problems := 0
	for i, e := range after {
		if failed[i] {
			problems++
			continue
		}
		add(e.pkg, i)
		add("~all", i)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "package\treleases\theld back")
	classes := slices.DeleteFunc(pins.Classes(), func(c pins.Class) bool {
		return counts["~all"][string(c)] == 0
	})
	for _, c := range classes {
		fmt.Fprintf(w, "\t%s", c)
	}
	fmt.Fprintln(w)
	for _, pkg := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(w, "%s\t%d\t%d", strings.Replace(pkg, "~all", "all", 1), rows[pkg].releases,
			rows[pkg].held)
		for _, c := range classes {
			fmt.Fprintf(w, "\t%d", counts[pkg][string(c)])
		}
		fmt.Fprintln(w)
	}
	err := w.Flush()
	if problems > 0 {
		err = errors.Join(err, fmt.Errorf("%d releases could not be compared", problems))
	}
	for i, e := range after {
		for _, c := range outcomes[i] {
			if show {
				fmt.Fprintf(out, "%s, %s to %s: %s\n", e.pkg, before[i].version, e.version, c)
			}
		}
	}
	return err
}
