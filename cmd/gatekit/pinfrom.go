package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/pins"
	"gatekit/core/regularfile"
)

// maxRegistryBytes is the largest server.json that is read.
const maxRegistryBytes = 1 << 20

// registryEntry is a server in the format of the MCP registry (schema 2025-12-11). The names of
// other members, which may be added, are not read.
type registryEntry struct {
	Name     string `json:"name"`
	Packages []struct {
		RegistryType string `json:"registryType"`
		Identifier   string `json:"identifier"`
		Version      string `json:"version"`
	} `json:"packages"`
	Remotes []struct {
		URL string `json:"url"`
	} `json:"remotes"`
}

// readRegistryEntry reads a server.json, as a publisher writes it or as the registry returns it.
func readRegistryEntry(file string) (*registryEntry, error) {
	b, err := regularfile.Read(file, maxRegistryBytes)
	if err != nil {
		return nil, fmt.Errorf("read the registry entry: %w", err)
	}
	var answer struct {
		registryEntry `json:",inline"`
		Server        *registryEntry `json:"server"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("read the registry entry: %s: %w", file, err)
	}
	e := &answer.registryEntry
	if answer.Server != nil {
		e = answer.Server
	}
	if len(e.Packages)+len(e.Remotes) == 0 {
		return nil, fmt.Errorf("read the registry entry: %s has neither packages nor remotes", file)
	}
	return e, nil
}

// published returns the packages and URLs of the entry.
func (e *registryEntry) published() (sources []pins.Source, urls, names []string) {
	for _, p := range e.Packages {
		source := pins.Source{Version: p.Version}
		switch p.RegistryType {
		case "npm":
			source.NPM = p.Identifier
		case "pypi":
			source.PyPI = p.Identifier
		case "oci":
			// The identifier has the tag or the digest, unless the entry is of an older schema.
			source.Image, source.Version = p.Identifier, ""
			if last := p.Identifier[strings.LastIndexByte(p.Identifier, '/')+1:]; p.Version != "" &&
				!strings.ContainsAny(last, ":@") {
				source.Image += ":" + p.Version
			}
		default:
			continue
		}
		sources, names = append(sources, source), append(names, source.String())
	}
	for _, r := range e.Remotes {
		urls, names = append(urls, r.URL), append(names, r.URL)
	}
	return sources, urls, names
}

// check returns an error if a server is started from another package, or reached by another URL,
// than the entry has.
func (e *registryEntry) check(s config.Server, file string) error {
	sources, urls, names := e.published()
	starts := s.URL
	if s.Command != "" {
		source := pinnedPackage(s)
		if starts = source.String(); slices.Contains(sources, source) {
			return nil
		}
		if starts == "" {
			starts = s.Command
		}
	} else if slices.Contains(urls, s.URL) {
		return nil
	}
	return fmt.Errorf("server %q is %s, but %s has %s\nhint: write the published package with its "+
		"version, or the published URL, into the configuration", s.Name,
		display.EscapeLine(starts, maxPinnedText), file,
		display.EscapeLine(strings.Join(names, ", "), maxPinnedText))
}

// pinFrom approves the launch and the package of a server that are those of a registry entry.
func (p *program) pinFrom(cmd *cobra.Command, path string, args []string, file string,
	yes bool) error {
	if len(args) != 1 {
		return errors.New("--from needs the name of one server")
	}
	entry, err := readRegistryEntry(file)
	if err != nil {
		return err
	}
	cfg, servers, lock, err := p.pinInputs(cmd, path, args)
	if err != nil {
		return err
	}
	s := servers[0]
	if err := entry.check(s, file); err != nil {
		return err
	}
	old := lock.Servers[s.Name]
	next := &pins.Server{}
	if old != nil {
		next = old.Clone()
	}
	next.Start, next.Package = pinnedStart(s, p.masked.mask), packageOf(s, cfg, old)
	before := &pins.Server{}
	if old != nil {
		before = old
	}
	changes, err := review(cmd.Context(), before.Compare(next), next)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	changePrinter{out, paletteFor(out)}.print(s.Name, changes, false)
	switch {
	case len(changes) == 0:
		return nil
	case isLocked(cfg, s.Name):
		return lockedError(cfg, 1)
	case !yes && !isTerminal(os.Stdin):
		return errors.New("1 server not approved\nhint: run gatekit pin in a terminal, or add " +
			"--yes")
	case !yes:
		fmt.Fprintf(out, "Approve the launch of server %q? [y/N] ", s.Name)
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
			return errors.New("1 server not approved")
		}
	}
	lock.Servers[s.Name] = next
	if _, err := lock.Write(); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s\n", pinsOf(cfg).File)
	return nil
}
