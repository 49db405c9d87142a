package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"gatekit/core/config"
)

// checkReport prints each result of a check as soon as the result is known. Several goroutines may
// use a checkReport at the same time.
type checkReport struct {
	out    io.Writer
	asJSON bool
	color  palette
	mask   func(string) string // masks secrets; nil masks nothing
	width  int                 // width of the column with the names

	mu       sync.Mutex
	failed   bool
	printErr error
}

// checkResult is one result as gatekit check --json prints it.
type checkResult struct {
	// configuration, server, issuer, cluster, shared, canary, plugin, policy, sink, witness,
	// telemetry, audit, allow or sandbox; of gatekit doctor, also attack, pins, client, clock or
	// path
	Check  string `json:"check"`
	Name   string `json:"name,omitempty"`
	OK     bool   `json:"ok"`
	Note   bool   `json:"note,omitempty"` // no fault, but worth knowing
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
	// NotConfined holds the servers that may do everything that the user may. It is for the check
	// sandbox.
	NotConfined []string `json:"notConfined,omitempty"`
	// The position of a mistake in the configuration or in a policy.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// start prints the path of a configuration that has no mistakes.
func (r *checkReport) start(file string) {
	if r.asJSON {
		r.ok("configuration", "", file)
		return
	}
	_, r.printErr = fmt.Fprintln(r.out, "configuration", file)
}

// ok prints the result of a check that found nothing wrong. The parameter kind is the Check of a
// checkResult.
func (r *checkReport) ok(kind, name, result string) {
	r.print(checkResult{Check: kind, Name: name, OK: true, Result: result})
}

// note prints a result that is no fault, but worth knowing.
func (r *checkReport) note(kind, name, result string) {
	r.print(checkResult{Check: kind, Name: name, OK: true, Note: true, Result: result})
}

// fail prints the error of a check that failed.
func (r *checkReport) fail(kind, name string, err error) {
	if es, ok := errors.AsType[config.Errors](err); ok && r.asJSON {
		r.mistakes(kind, name, es)
		return
	}
	r.print(checkResult{Check: kind, Name: name, Error: err.Error()})
}

// mistakes prints the mistakes of a configuration as JSON.
func (r *checkReport) mistakes(kind, name string, es config.Errors) {
	for _, e := range es {
		r.print(checkResult{Check: kind, Name: name, Error: e.Message, File: e.Position.File,
			Line: e.Position.Line, Column: e.Position.Col})
	}
}

func (r *checkReport) print(c checkResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || !c.OK
	if r.mask != nil {
		c.Result, c.Error = r.mask(c.Result), r.mask(c.Error)
	}
	var err error
	switch indent := len("FAIL  "); {
	case r.asJSON:
		err = printJSON(r.out, c)
	case c.OK:
		label := r.color.good("ok") + "  "
		if c.Note {
			label = r.color.acted("note")
		}
		_, err = fmt.Fprintf(r.out, "%s  %-*s  %s\n", label, r.width, c.Name,
			strings.ReplaceAll(c.Result, "\n", "\n"+strings.Repeat(" ", indent+r.width+2)))
	default:
		_, err = fmt.Fprintf(r.out, "%s  %-*s  %s\n", r.color.bad("FAIL"), r.width, c.Name,
			strings.ReplaceAll(c.Error, "\n", "\n"+strings.Repeat(" ", indent)))
	}
	if r.printErr == nil {
		r.printErr = err
	}
}

// result returns an error when a check failed or a result could not be printed.
func (r *checkReport) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.printErr != nil:
		return fmt.Errorf("print the results: %w", r.printErr)
	case r.failed:
		return errReported
	}
	return nil
}
