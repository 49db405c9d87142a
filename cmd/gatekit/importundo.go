package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/core/atomicfile"
	"gatekit/core/clientfiles"
)

func (p *program) importUndo() *cobra.Command {
	var yes, asJSON bool
	c := &cobra.Command{
		Use:   "undo [ID]",
		Short: "Restore the files of clients as they were before an import",
		Long: `Undo restores the files that an import has changed; without ID, those of the last
import. A file that is as import left it becomes byte for byte as it was. In a file that the client
or you have changed since, undo restores the command and the arguments of each server by itself, and
keeps the other changes. A server whose command is no longer that of the import is left as it is,
and named.

Undo shows the changes and asks, unless you set --yes. Then it removes the copies of the import from
the state folder. If it had to leave something as it is, it keeps the copies, and names their
folder.

After gatekit import --to, undo puts the servers back into the clients' files. The configuration
stays.`,
		Example: `  gatekit import undo
  gatekit import undo 20261128T091500Z --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("undo takes one argument, the id of an import")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			s, err := findImports()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ids, _ := s.ids()
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := openImports()
			if err != nil {
				return err
			}
			defer s.close()
			m, err := s.named(args)
			if err != nil {
				return err
			}
			return s.undo(cmd, m, yes, asJSON)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "restore without a question")
	c.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object; without --yes, only show what would change")
	return c
}

// named returns the import with the id in args, or the last one.
func (s *imports) named(args []string) (*manifest, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("there is no import to undo")
	}
	if len(args) > 0 {
		if !slices.Contains(ids, args[0]) {
			return nil, fmt.Errorf("there is no import %q\nhint: the imports are %s", args[0],
				strings.Join(ids, ", "))
		}
		return s.read(args[0])
	}
	for _, id := range ids {
		if m, err := s.read(id); err != nil || !m.Undone {
			return m, err
		}
	}
	return nil, fmt.Errorf("there is no import to undo\nhint: copies of files that could not be "+
		"restored are in %s", s.folder.Path)
}

// restoredFile is a file of an import, and how undo restores it.
type restoredFile struct {
	Client string `json:"client"`
	File   string `json:"file"`
	// restored (byte for byte), changed (only the servers), unchanged or failed
	Result string       `json:"result"`
	Left   []leftServer `json:"left,omitempty"`
	Error  string       `json:"error,omitempty"`

	file    clientfiles.File
	content []byte
}

// undo restores the files of an import.
func (s *imports) undo(cmd *cobra.Command, m *manifest, yes, asJSON bool) error {
	out := cmd.OutOrStdout()
	var files []*restoredFile
	changes := 0
	for _, f := range m.Files {
		r := s.planUndo(m.ID, f)
		if files = append(files, r); r.content != nil {
			changes++
		}
	}
	if !asJSON {
		printUndo(out, files)
	}
	if changes > 0 && !yes {
		if asJSON {
			return printUndoJSON(out, m.ID, false, files)
		}
		if !confirmed(cmd, fmt.Sprintf("Restore %s?", plural(changes, "file"))) {
			return errNothingChanged
		}
	}
	failed, left := 0, 0
	for i, r := range files {
		for try := 1; r.content != nil; try++ {
			err := r.file.Replace(r.content)
			if errors.Is(err, atomicfile.ErrChanged) && try < maxImportTries {
				*r = *s.planUndo(m.ID, m.Files[i])
				continue
			}
			if err != nil {
				r.Result, r.Error = "failed", err.Error()
			}
			break
		}
		if r.Result == "failed" {
			failed++
		}
		left += len(r.Left)
	}
	switch {
	case failed > 0: // undo can be tried again
	case left > 0:
		m.Undone = true
		if err := s.writeManifest(m); err != nil {
			return err
		}
	default:
		if err := s.remove(m.ID); err != nil {
			return err
		}
	}
	if asJSON {
		return printUndoJSON(out, m.ID, true, files)
	}
	for _, r := range files {
		switch {
		case r.Result == "failed":
			fmt.Fprintf(cmd.ErrOrStderr(), "not restored: %s: %s\n", printable(r.File),
				printable(r.Error))
		case r.Result == "restored":
			fmt.Fprintf(out, "restored, byte for byte: %s\n", printable(r.File))
		case r.Result == "changed":
			fmt.Fprintf(out, "restored, with the changes since: %s\n", printable(r.File))
		}
	}
	if left > 0 {
		fmt.Fprintf(out, "the copies from before the import stay in %s; they may have secrets: "+
			"remove the folder when you do not need them\n", printable(s.in(m.ID).Path))
	}
	if failed > 0 {
		return fmt.Errorf("%s not restored\nhint: the copies from before the import are in %s",
			plural(failed, "file"), s.in(m.ID).Path)
	}
	return nil
}

// planUndo finds out what has to be done to restore a file.
func (s *imports) planUndo(id string, f manifestFile) *restoredFile {
	r := &restoredFile{Client: f.Client, File: f.Path, Result: "unchanged"}
	fail := func(err error) *restoredFile {
		r.Result, r.Error = "failed", err.Error()
		return r
	}
	place := clientfiles.Place{Format: f.Format, Keys: f.Keys, Shape: f.Shape}
	r.file = clientfiles.File{Place: place, Path: f.Path}.Again()
	switch {
	case errors.Is(r.file.Err, fs.ErrNotExist):
		for _, name := range f.servers() {
			r.Left = append(r.Left, leftServer{Client: f.Client, File: f.Path, Server: name,
				Reason: "the file is gone"})
		}
		return r
	case r.file.Err != nil:
		return fail(r.file.Err)
	}
	switch digest(r.file.Content) {
	case f.Before:
		return r
	case f.After:
		content, err := s.copyOf(id, f)
		if err != nil {
			return fail(err)
		}
		r.Result, r.content = "restored", content
		return r
	}
	content, kept, err := r.file.Document.Unwrap(f.Originals)
	if len(f.Joined) > 0 {
		content, kept, err = r.file.Document.Split(f.Joined)
	}
	if err != nil {
		return fail(err)
	}
	names := f.servers()
	for _, i := range slices.Sorted(maps.Keys(kept)) {
		r.Left = append(r.Left, leftServer{Client: f.Client, File: f.Path, Server: names[i],
			Reason: kept[i]})
	}
	if len(kept) < len(names) {
		r.Result, r.content = "changed", content
	}
	return r
}

// servers returns the names of the servers that import has written into the file.
func (f manifestFile) servers() (names []string) {
	for _, j := range f.Joined {
		names = append(names, j.Name)
	}
	for _, o := range f.Originals {
		names = append(names, o.Name)
	}
	return names
}

func printUndo(out io.Writer, files []*restoredFile) {
	colors := paletteFor(out)
	for _, r := range files {
		if r.content != nil {
			fmt.Fprintf(out, "%s\n\n", printable(r.File))
			printDiff(out, colors, contentDiff(r.file, r.content))
			fmt.Fprintln(out)
		} else if r.Result == "unchanged" && len(r.Left) == 0 {
			fmt.Fprintf(out, "already as before: %s\n", printable(r.File))
		}
		for _, l := range r.Left {
			fmt.Fprintf(out, "left as it is: %q in %s: %s\n", l.Server, printable(l.File),
				oneLine(l.Reason))
		}
	}
}

func printUndoJSON(out io.Writer, id string, written bool, files []*restoredFile) error {
	err := json.MarshalWrite(out, struct {
		ID      string          `json:"id"`
		Written bool            `json:"written"`
		Files   []*restoredFile `json:"files"`
	}{id, written, files}, jsontext.Multiline(true))
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, r := range files {
		if r.Result == "failed" {
			return errReported
		}
	}
	return nil
}
