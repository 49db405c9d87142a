package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/pins"
)

// exitUnverified is the exit code of gatekit pin verify when it could not compare a server.
const exitUnverified = 2

func (p *program) pinVerify() *cobra.Command {
	var path string
	var asJSON, asSARIF bool
	with := &pinComparison{}
	c := &cobra.Command{
		Use:   "verify [SERVER…]",
		Short: "Fail if a server declares something that is not approved",
		Long: `Verify starts each server, or the named servers, and compares what they declare with
the lock file. It never writes the lock file. Use it in CI.

With --shared, verify compares with what the replicas approve: the lock file, and what they have
trusted or approved since ([shared]).

Exit codes:

  0  every server declares what is approved; changes that are only shown do not count
  1  a server declares something that is not approved
  2  the lock file cannot be read, there is none, or a server cannot be started

With --json, verify prints one JSON object for each server. With --sarif, it prints a SARIF 2.1.0
log, which code hosts show beside the lock file.`,
		Example: `  gatekit pin verify
  gatekit pin verify --sarif > pins.sarif`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := p.comparePins(cmd, path, args, with, requireLock)
			if err != nil {
				return &exitError{err, exitUnverified}
			}
			if err := r.print(cmd, asJSON, asSARIF); err != nil {
				return &exitError{err, exitUnverified}
			}
			switch {
			case r.failed > 0:
				return &exitError{fmt.Errorf("%s could not be verified", plural(r.failed,
					"server")), exitUnverified}
			case r.changed > 0:
				return fmt.Errorf("%s not as approved\nhint: review the changes with gatekit pin "+
					"diff, and approve them with gatekit pin", plural(r.changed, "server"))
			}
			return nil
		},
	}
	configFlag(c, &path)
	with.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each server")
	c.Flags().BoolVar(&asSARIF, "sarif", false, "print a SARIF 2.1.0 log")
	c.MarkFlagsMutuallyExclusive("json", "sarif")
	return c
}

// pinResults are the results of gatekit pin verify.
type pinResults struct {
	file            string // the lock file
	lock            *pins.Lock
	servers         []pinResult
	failed, changed int
}

// pinResult is the result for one server, as --json prints it.
type pinResult struct {
	Server  string          `json:"server"`
	OK      bool            `json:"ok"`
	Error   string          `json:"error,omitempty"`
	Changes []pinChangeJSON `json:"changes,omitempty"`
	// about names of other servers; they do not make verify fail
	Warnings []string `json:"warnings,omitempty"`

	changes      []reviewedChange
	hidesPackage bool // another package is held back
}

type pinChangeJSON struct {
	Class    pins.Class `json:"class"`
	HeldBack bool       `json:"held_back"`
	Kind     pins.Kind  `json:"kind,omitempty"`
	Name     string     `json:"name,omitempty"`
	Pointer  string     `json:"pointer,omitempty"`
	Before   string     `json:"before,omitempty"`
	After    string     `json:"after,omitempty"`
	Findings []string   `json:"findings,omitempty"` // of injection in the new words
}

// requireLock returns an error if there is no lock file, and the replicas approve nothing.
func requireLock(lock *pins.Lock, file string) error {
	if lock.IsNew() && len(lock.Servers) == 0 {
		return fmt.Errorf("there is no %s\nhint: run gatekit pin, and commit the file", file)
	}
	return nil
}

// pinComparison selects what the servers are compared with, and for whom.
type pinComparison struct {
	pinnedFor
	shared bool // also with what the replicas approve
}

func (o *pinComparison) flags(c *cobra.Command) {
	o.flag(c)
	c.Flags().BoolVar(&o.shared, "shared", false,
		"compare with what the replicas approve, too (needs [shared])")
}

// lock returns what is approved: lock, or with --shared what the replicas of cfg make of it.
func (o *pinComparison) lock(ctx context.Context, cfg *config.Config,
	lock *pins.Lock) (*pins.Lock, error) {
	if !o.shared {
		return lock, nil
	}
	if cfg.Shared == nil {
		return nil, fmt.Errorf("--shared needs [shared] in %s", displayPath(cfg.File))
	}
	s, done, err := openSharedPins(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Effective(lock), nil
}

// comparePins starts the servers and compares what they declare with what is approved. It starts
// none of them if check returns an error.
func (p *program) comparePins(cmd *cobra.Command, path string, args []string, with *pinComparison,
	check func(lock *pins.Lock, file string) error) (*pinResults, error) {
	who, err := with.principal()
	if err != nil {
		return nil, err
	}
	cfg, servers, lock, err := p.pinInputs(cmd, path, args)
	if err == nil {
		lock, err = with.lock(cmd.Context(), cfg, lock)
	}
	if err != nil {
		return nil, err
	}
	r := &pinResults{file: pinsOf(cfg).File, lock: lock}
	if err := check(lock, r.file); err != nil {
		return nil, err
	}
	starts := pinStarts{config: cfg, lock: lock, as: who}
	err = p.startServers(cmd.Context(), starts, servers, func(l *liveServer) error {
		result := pinResult{Server: l.name}
		if l.err != nil {
			r.failed++
			result.Error = p.masked.mask(l.err.Error())
			r.servers = append(r.servers, result)
			return nil
		}
		var err error
		if result.changes, err = review(cmd.Context(), with.changesOf(lock.Servers[l.name], l.live),
			l.live); err != nil {
			return err
		}
		hides := hidesPackage(cfg, l.name)
		result.OK = lock.Servers[l.name] != nil && heldBack(result.changes, hides) == 0
		if !result.OK {
			r.changed++
		}
		if lock.Servers[l.name] == nil {
			result.Error = "the server is not in the lock file"
			if with.shared {
				result.Error += ", and no replica has approved it"
			}
		}
		result.Warnings = crossings(lock, l.name, l.live)
		for _, c := range result.changes {
			result.Changes = append(result.Changes, pinChangeJSON{c.Class,
				isHeldBack(c.Change, hides), c.Kind, c.Name, c.Pointer, c.Before, c.After,
				c.findings})
		}
		result.hidesPackage = hides
		r.servers = append(r.servers, result)
		return nil
	})
	return r, err
}

func (r *pinResults) print(cmd *cobra.Command, asJSON, asSARIF bool) error {
	out := cmd.OutOrStdout()
	if asSARIF {
		return printJSON(out, r.sarif())
	}
	printer := changePrinter{out, paletteFor(out)}
	for _, s := range r.servers {
		var err error
		switch {
		case asJSON:
			err = printJSON(out, s)
		case s.Error != "" && s.Changes == nil:
			_, err = fmt.Fprintf(out, "server %q: %s\n", s.Server, printable(s.Error))
		default:
			printer.print(s.Server, s.changes, s.hidesPackage)
			if s.Error != "" {
				fmt.Fprintf(out, "  %s\n", s.Error)
			}
			for _, warning := range s.Warnings {
				fmt.Fprintf(out, "  warning: %s\n", warning)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// object is a JSON object.
type object = map[string]any

// sarif returns the results as a SARIF 2.1.0 log. Each change is a result at the line of its item
// in the lock file.
func (r *pinResults) sarif() object {
	rules, results := []object{}, []object{}
	for _, class := range append(pins.Classes(), "unverified") {
		rules = append(rules, object{"id": "pins/" + string(class)})
	}
	add := func(server string, class pins.Class, level, text string, line int) {
		results = append(results, object{
			"ruleId": "pins/" + string(class), "level": level,
			"message": object{"text": fmt.Sprintf("server %q: %s", server, text)},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": filepath.Base(r.file)},
				"region":           object{"startLine": line}}}},
		})
	}
	for _, s := range r.servers {
		if s.Error != "" {
			add(s.Server, "unverified", "error", s.Error, 1)
		}
		for _, c := range s.changes {
			level := "note"
			if isHeldBack(c.Change, s.hidesPackage) {
				level = "error"
			}
			text := describeChange(c.Change)
			if c.Before != c.After {
				text += ": " + (changePrinter{}).words(c.Before, c.After)
			}
			if len(c.findings) > 0 {
				text += " (injection: " + strings.Join(c.findings, ", ") + ")"
			}
			add(s.Server, c.Class, level, text, r.lock.Line(s.Server, c.Kind, c.Name))
		}
	}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []object{{
			"tool": object{"driver": object{"name": "gatekit", "version": version(),
				"rules": rules}},
			"results": results,
		}},
	}
}
