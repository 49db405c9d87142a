//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// A survivor is an entry of a list of survivors. The package comment describes the keys.
type survivor struct {
	File   string `toml:"file"`
	Func   string `toml:"func"`
	Mutant string `toml:"mutant"`
	Line   string `toml:"line"`
	Why    string `toml:"why"`
	Text   bool   `toml:"text"`

	at int // the number of the line in the file, 0 in a list
}

// key returns the fields that name the mutant. Two mutants have the same key if a function has the
// same line twice.
func (s survivor) key() [4]string {
	return [4]string{s.File, s.Func, s.Mutant, s.Line}
}

// entry returns the text of s in a list.
func (s survivor) entry() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[[survivor]]\nfile = %q\nfunc = %q\nmutant = %q\nline = %s\n", s.File, s.Func,
		s.Mutant, quote(s.Line))
	if s.Text {
		b.WriteString("text = true\n")
	}
	fmt.Fprintf(&b, "why = %s\n", quote(s.Why))
	return b.String()
}

// quote returns a TOML string, if possible without escapes.
func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, "'\n\t") {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}

// readSurvivors reads a list. A file that does not exist is an empty list.
func readSurvivors(name string) ([]survivor, error) {
	var list struct {
		Survivors []survivor `toml:"survivor"`
	}
	meta, err := toml.DecodeFile(name, &list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: unknown key %q", name, unknown[0])
	}
	return list.Survivors, nil
}

// writeSurvivors writes a list.
func writeSurvivors(name string, list []survivor) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b survivor) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.at - b.at
	})
	var b bytes.Buffer
	b.WriteString("# Mutants that the package's own tests do not kill.\n" +
		"# The package comment of test/mutants describes the keys.\n")
	for _, s := range list {
		b.WriteString("\n" + s.entry())
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// A result is the outcome of comparing the mutants of a package with its list of survivors.
type result struct {
	killed      int
	untested    int
	current     []survivor // all survivors, with the reason of the list
	unexplained []survivor // survivors that the list does not have, or not with a reason
	unconfirmed []survivor // mutants that all tests were not run against; they count as untested
	stale       []survivor // entries whose mutant is killed or gone
}

// compare compares the mutants of a package with its list of survivors.
func compare(found []*mutant, listed []survivor) result {
	var r result
	left := slices.Clone(listed)
	for _, m := range found {
		switch m.outcome {
		case killed:
			r.killed++
			continue
		case untested:
			r.untested++
			continue
		case unconfirmed:
			r.untested++
			r.unconfirmed = append(r.unconfirmed, m.survivor)
			continue
		case invalid:
			continue
		}
		s := m.survivor
		isSame := func(l survivor) bool { return l.key() == s.key() }
		if i := slices.IndexFunc(left, isSame); i >= 0 {
			s.Why, s.Text = left[i].Why, left[i].Text
			left = slices.Delete(left, i, i+1)
		}
		r.current = append(r.current, s)
		if s.Why == "" {
			r.unexplained = append(r.unexplained, s)
		}
	}
	r.stale = left
	return r
}

// withoutMutant returns the entries of a list whose mutant is not among all mutants of the package.
func withoutMutant(listed []survivor, all []*mutant) (stale []survivor) {
	exist := map[[4]string]int{}
	for _, m := range all {
		exist[m.key()]++
	}
	for _, s := range listed {
		if exist[s.key()]--; exist[s.key()] < 0 {
			stale = append(stale, s)
		}
	}
	return stale
}

// summary returns the figures of a package.
func (r result) summary() string {
	var counted, text int
	for _, s := range r.current {
		if s.Text {
			text++
		} else {
			counted++
		}
	}
	rate := 100.0
	if r.killed+counted > 0 {
		rate = 100 * float64(r.killed) / float64(r.killed+counted)
	}
	summary := fmt.Sprintf("%d killed, %d survive: %.1f %% killed; %d more survive in texts; "+
		"%d without a reason", r.killed, counted, rate, text, len(r.unexplained))
	if r.untested > 0 {
		summary += fmt.Sprintf("; the time is over, %d were not tested", r.untested)
	}
	return summary
}
