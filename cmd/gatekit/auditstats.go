package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit/format"
	"gatekit/audit/query"
)

func (p *program) auditStats() *cobra.Command {
	var config, fleetDir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "stats [FILE…]",
		Short: "Count calls, and show their latency, denials and errors",
		Long: `Stats counts the calls that "gatekit audit show" prints: by server, by tool, and by
principal (by session if the principal is unknown). It also lists the denials of each rule, the
calls that rules in shadow mode would have denied or changed, the slowest calls, and events.

The duration of a call is the time from the arrival of the request at Gatekit until the response was
checked. It includes the time of the server and of all plugins and policies. P50, P95 and P99 are
the 50th, 95th and 99th percentile of the durations of the answered calls.

With --fleet, or with FILEs in several folders, stats counts the calls of several replicas together,
and also by replica.

ERRORS counts protocol errors, from a server or from Gatekit, and tool results that report failure.

` + filterHelp,
		Example: `  gatekit audit stats --since 24h
  gatekit audit stats --server github --json`,
	}
	read := filterFlags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		logs, filter, err := auditReader(cmd, &logSource{config, args, fleetDir}, read)
		if err != nil {
			return err
		}
		var s query.Stats
		for call, err := range mergedCalls(cmd.Context(), logs, filter, query.Options{}) {
			if err != nil {
				return readError(err)
			}
			s.Add(call)
		}
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if asJSON {
			return readError(statsJSON(cmd.OutOrStdout(), &s))
		}
		if s.Since.IsZero() {
			reportNoMatch(cmd)
			return nil
		}
		return readError(statsTable(cmd.OutOrStdout(), &s))
	}
	configFlag(c, &config)
	fleetFlag(c, &fleetDir)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; times are in milliseconds")
	return c
}

// maxRows is the largest number of rows in a printed table.
const maxRows = 20

func statsTable(out io.Writer, s *query.Stats) error {
	const layout = "2006-01-02 15:04:05Z"
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s to %s\n", s.Since.UTC().Format(layout), s.Until.UTC().Format(layout))
	counts := func(title string, all []*query.CallCounts) {
		if len(all) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\tCALLS\tDENIED\tCHANGED\tERRORS\tCANCELLED\tOPEN\tP50\tP95\tP99\n",
			title)
		for _, n := range all[:min(len(all), maxRows)] {
			name := "-"
			if n.Name != "" {
				name = format.Visible(n.Name)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d", name, n.All, n.Refused, n.Modified,
				n.Failed, n.Cancelled, n.Open)
			for _, percent := range percents {
				took := "-"
				if d := n.Latency(percent); d > 0 {
					took = rounded(d).String()
				}
				fmt.Fprintf(w, "\t%s", took)
			}
			fmt.Fprintln(w)
		}
		if len(all) > maxRows {
			fmt.Fprintf(w, "and %d more\n", len(all)-maxRows)
		}
	}
	all, fromServers := s.Calls, s.ServerRequests
	all.Name, fromServers.Name = "from clients", "from servers"
	counts("CALLS", slices.DeleteFunc([]*query.CallCounts{&all, &fromServers},
		func(n *query.CallCounts) bool {
			return n == &fromServers && n.All == 0
		}))
	counts("REPLICA", s.Replicas())
	counts("SERVER", s.Servers())
	counts("TOOL", s.Tools())
	counts("PRINCIPAL", s.Principals())
	if denials := s.Denials(); len(denials) > 0 {
		fmt.Fprintf(w, "\nDENIED BY\tRULE\tTIMES\n")
		for _, d := range denials[:min(len(denials), maxRows)] {
			fmt.Fprintf(w, "%s\t%s\t%d\n", format.Visible(d.Stage),
				format.Visible(d.DenialSource.Rule),
				d.Count)
		}
	}
	if unenforced := s.Unenforced(); len(unenforced) > 0 {
		fmt.Fprintf(w, "\nNOT ENFORCED\tBY\tRULE\tTIMES\n")
		for _, u := range unenforced[:min(len(unenforced), maxRows)] {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", format.Visible(u.Action), format.Visible(u.Stage),
				format.Visible(u.Rule), u.Count)
		}
	}
	if len(s.Slowest) > 0 {
		fmt.Fprintf(w, "\nSLOWEST\tSERVER\tCALL\tPRINCIPAL\tRECORD\n")
		for _, c := range s.Slowest {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", rounded(c.Duration),
				format.Visible(strings.Join(c.Servers, ",")),
				format.Visible(strings.TrimSpace(c.Method+" "+c.Name)), format.Visible(c.Caller()),
				recordNumber(c.Replica, c.FirstSeq))
		}
	}
	if len(s.Events) > 0 {
		fmt.Fprintf(w, "\nEVENT\tTIMES\n")
		for _, name := range slices.Sorted(maps.Keys(s.Events)) {
			fmt.Fprintf(w, "%s\t%d\n", format.Visible(name), s.Events[name])
		}
	}
	return w.Flush()
}

var percents = [3]float64{50, 95, 99}

func statsJSON(out io.Writer, s *query.Stats) error {
	type count struct {
		Name      string  `json:"name,omitempty"`
		Calls     int     `json:"calls"`
		Refused   int     `json:"refused"`
		Changed   int     `json:"changed"`
		Errors    int     `json:"errors"`
		Cancelled int     `json:"cancelled"`
		Open      int     `json:"open"`
		P50       float64 `json:"p50_ms"`
		P95       float64 `json:"p95_ms"`
		P99       float64 `json:"p99_ms"`
	}
	type denials struct {
		Stage string `json:"stage"`
		Rule  string `json:"rule,omitempty"`
		Times int    `json:"times"`
	}
	type unenforced struct {
		Action string `json:"action"`
		denials
	}
	type slow struct {
		Took      float64   `json:"took_ms"`
		Replica   string    `json:"replica,omitempty"`
		Began     time.Time `json:"began"`
		Record    uint64    `json:"record"`
		Session   string    `json:"session,omitempty"`
		Exchange  string    `json:"exchange,omitempty"`
		Principal string    `json:"principal,omitempty"`
		Servers   []string  `json:"servers,omitempty"`
		Method    string    `json:"method"`
		Name      string    `json:"name,omitempty"`
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	countOf := func(n *query.CallCounts) count {
		return count{n.Name, n.All, n.Refused, n.Modified, n.Failed, n.Cancelled, n.Open,
			ms(n.Latency(percents[0])), ms(n.Latency(percents[1])), ms(n.Latency(percents[2]))}
	}
	each := func(all []*query.CallCounts) []count {
		counts := make([]count, len(all))
		for i, n := range all {
			counts[i] = countOf(n)
		}
		return counts
	}
	report := struct {
		Since          *time.Time     `json:"since,omitempty"`
		Until          *time.Time     `json:"until,omitempty"`
		Calls          count          `json:"calls"`
		ServerRequests count          `json:"server_requests"`
		Replicas       []count        `json:"replicas,omitempty"`
		Servers        []count        `json:"servers"`
		Tools          []count        `json:"tools"`
		Principals     []count        `json:"principals"`
		Denials        []denials      `json:"denials"`
		Unenforced     []unenforced   `json:"unenforced"`
		Slowest        []slow         `json:"slowest"`
		Events         map[string]int `json:"events"`
	}{
		Calls: countOf(&s.Calls), ServerRequests: countOf(&s.ServerRequests),
		Replicas: each(s.Replicas()), Servers: each(s.Servers()), Tools: each(s.Tools()),
		Principals: each(s.Principals()),
		Denials:    []denials{}, Unenforced: []unenforced{}, Slowest: []slow{},
		Events: map[string]int{},
	}
	if !s.Since.IsZero() {
		report.Since, report.Until = &s.Since, &s.Until
	}
	for _, d := range s.Denials() {
		report.Denials = append(report.Denials, denials{d.Stage, d.DenialSource.Rule, d.Count})
	}
	for _, u := range s.Unenforced() {
		report.Unenforced = append(report.Unenforced, unenforced{u.Action, denials{u.Stage, u.Rule,
			u.Count}})
	}
	for _, c := range s.Slowest {
		report.Slowest = append(report.Slowest, slow{ms(c.Duration), c.Replica, c.Start, c.FirstSeq,
			c.Session, c.Exchange, c.Principal, c.Servers, c.Method, c.Name})
	}
	if s.Events != nil {
		report.Events = s.Events
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
