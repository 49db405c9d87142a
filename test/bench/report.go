//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report prints what was measured as tables, row by row as it comes. What the columns mean is in
// doc.go.
type report struct{ to io.Writer }

func (r report) line(format string, args ...any) {
	fmt.Fprintln(r.to, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (r report) callsHead(proxies []string) {
	r.line("calls of echo; times in µs, rates in calls per second; reach in brackets")
	r.heads(fmt.Sprintf("%-11s %-7s %8s %7s", "route", "era", "size", "at"), proxies)
}

// heads are the two lines over a table of calls whose rows begin with the columns of first.
func (r report) heads(first string, proxies []string) {
	names := fmt.Sprintf("%*s | %-15s", len(first), "", "direct")
	columns := fmt.Sprintf("%s | %7s %7s", first, "p50", "rate")
	for _, name := range proxies {
		names += fmt.Sprintf(" | %-33s", name)
		columns += fmt.Sprintf(" | %7s %7s %7s %9s", "+p50", "+p99", "rate", "cpu/call")
	}
	if len(proxies) == 2 {
		names += fmt.Sprintf(" | %s : %s", proxies[1], proxies[0])
		columns += " | +p50          rate          cpu"
	}
	r.line("%s", names)
	r.line("%s", columns)
}

func (r report) calls(l lane, size int, proxies []string, c comparison) {
	var row strings.Builder
	fmt.Fprintf(&row, "%-11s %-7s %8s %7d | %s", l.route, l.era, bytesOf(size), l.workers,
		directCells(c))
	for i := range proxies {
		row.WriteString(proxyCells(c, i+1))
	}
	if len(proxies) == 2 {
		latency, rate := l.reach(size)
		row.WriteString(ratioCells(c, latency, rate))
	}
	r.line("%s", row.String())
}

func ratioCells(c comparison, latency, rate string) string {
	return fmt.Sprintf(" | %4.2f %-8s %4.2f %-8s %4.2f", ratio(c.added(2, p50), c.added(1, p50)),
		latency, c.rate(2)/c.rate(1), rate, ratio(c.cpu(2), c.cpu(1)))
}

func (r report) bridgeHead(ways []string) {
	r.line("\ncalls of echo through gatekit, before a server of the client's era, and (bridged) " +
		"before one of the other; reach: +p50 ≤ 1.5")
	r.heads(fmt.Sprintf("%-11s %-7s %8s %7s", "route", "era", "size", "at"), ways)
}

func (r report) bridge(l lane, size int, ways []string, c comparison) {
	row := fmt.Sprintf("%-11s %-7s %8s %7d | %s", l.route, l.era, bytesOf(size), l.workers,
		directCells(c))
	for i := range ways {
		row += proxyCells(c, i+1)
	}
	r.line("%s", row+ratioCells(c, "(≤ 1.5)", ""))
}

func (r report) pluginsHead(l lane) {
	r.line("\ncalls of echo through gatekit with plugins (%s %s), added to those without any; "+
		"cpu/call: of gatekit and of its plugins", l.route, l.era)
	if names := scanners(); len(names) > 0 {
		r.line("the plugins of this gatekit that read all texts: %s; each with its defaults",
			strings.Join(names, ", "))
	} else {
		r.line("this gatekit has no plugin that reads all texts")
	}
	r.stagesHead("plugins")
}

func (r report) telemetryHead(l lane) {
	r.line("\ncalls of echo through gatekit with telemetry (%s %s), added to those without",
		l.route, l.era)
	r.stagesHead("telemetry")
}

func (r report) stagesHead(what string) {
	r.line("%8s %7s  %-24s | %7s %7s %7s %-10s | %7s %5s %-9s | %8s %8s", "size", "at", what,
		"p50", "+p50", "+p99", "", "rate", "share", "", "gatekit", "plugins")
}

func (r report) stages(l lane, size int, c comparison) {
	for i, s := range l.stages {
		latency, rate := s.reach(l.workers, size)
		r.line("%8s %7d  %-24s | %7d %7d %7d %-10s | %7.0f %5.2f %-9s | %8d %8d", bytesOf(size),
			l.workers, s.way,
			c.p50(i).Microseconds(), c.added(i, p50).Microseconds(), c.added(i, p99).Microseconds(),
			latency, c.rate(i), c.share(i), rate,
			c.cpu(i).Microseconds(), c.perCall(i, children).Microseconds())
	}
}

func (r report) policiesHead(l lane) {
	r.line("\ncalls of echo through gatekit with policies (%s %s), added to those without any; "+
		"the text of the call is an argument that no rule is about", l.route, l.era)
	r.stagesHead("policies")
}

func (r report) auditHead(l lane) {
	r.line("\ncalls of echo through gatekit (%s %s) with each durability of the audit log, "+
		"added to one that records no message", l.route, l.era)
	r.line("%8s %7s  %-24s | %7s %7s %7s %-10s | %7s %5s %-9s | %8s", "size", "at", "durability",
		"p50", "+p50", "+p99", "", "rate", "share", "", "gatekit")
}

func (r report) audit(l lane, size int, c comparison) {
	for i, s := range l.stages {
		latency, rate := "", ""
		if s.way == "write" && size == 1<<10 {
			if l.workers == 1 {
				latency = "(≤ 15)"
			} else {
				rate = "(≥ 0.95)"
			}
		}
		r.line("%8s %7d  %-24s | %7d %7d %7d %-10s | %7.0f %5.2f %-9s | %8d", bytesOf(size),
			l.workers, s.way,
			c.p50(i).Microseconds(), c.added(i, p50).Microseconds(), c.added(i, p99).Microseconds(),
			latency, c.rate(i), c.share(i), rate, c.cpu(i).Microseconds())
	}
}

// reach is what the issues ask of three plugins of Gatekit in one process, and of the default
// rules.
func (s stages) reach(workers, size int) (latency, rate string) {
	if s.way == defaultRules && workers == 1 && size == 1<<10 {
		return "(≤ 60)", ""
	}
	if !strings.Contains(s.tables, "use =") {
		return "", ""
	}
	if workers > 1 {
		return "", "(≥ 0.5)"
	}
	return map[int]string{1 << 10: "(≤ 250)", 64 << 10: "(≤ 3000)"}[size], ""
}

// reach is what the issue asks of a case, in brackets; empty where it asks nothing.
func (l lane) reach(size int) (latency, rate string) {
	if l.route.httpFront() && size <= 64<<10 {
		if l.workers == 1 {
			return "(≤ 1.3)", ""
		}
		return "", "(≥ 0.75)"
	}
	if l.route == stdioStdio && l.workers == 1 {
		return "(≤ 2)", ""
	}
	return "", ""
}

func directCells(c comparison) string {
	return fmt.Sprintf("%7d %7.0f", c.p50(0).Microseconds(), c.rate(0))
}

func proxyCells(c comparison, way int) string {
	return fmt.Sprintf(" | %7d %7d %7.0f %9d", c.added(way, p50).Microseconds(),
		c.added(way, p99).Microseconds(), c.rate(way),
		c.cpu(way).Microseconds())
}

func (r report) listHead(l lane, proxies []string) {
	n := l.servers * l.tools
	size := len(answer(nil, []byte(`{"id":1,"method":"tools/list"}`), n))
	r.line("\ntools/list: %d tools, %s, from one server, and through gatekit from %d servers × "+
		"%d; reach: < 2 ms added at 1", n, bytesOf(size), l.servers, l.tools)
	r.heads(fmt.Sprintf("%-28s %7s", "era", "at"), proxies)
}

func (r report) list(l lane, proxies []string, c comparison) {
	row := fmt.Sprintf("%-28s %7d | %s", l.era, l.workers, directCells(c))
	for i := range proxies {
		row += proxyCells(c, i+1)
	}
	r.line("%s", row)
}

func (r report) memoryHead(calls int, sizes []int) {
	r.line("\nresident MiB after %d calls of each size, one size after the other; reach at 1: < 60",
		calls)
	row := fmt.Sprintf("%-11s %7s %-8s", "route", "at", "")
	for _, size := range sizes {
		row += fmt.Sprintf(" %9s", bytesOf(size))
	}
	r.line("%s %9s", row, "peak")
}

func (r report) memory(l lane, way string, resident []int, peak int) {
	row := fmt.Sprintf("%-11s %7d %-8s", l.route, l.workers, way)
	for _, b := range append(resident, peak) {
		row += fmt.Sprintf(" %9.1f", float64(b)/(1<<20))
	}
	r.line("%s", row)
}

func (r report) sessionsHead(n int) {
	r.line("\nresident KiB per idle legacy session over HTTP (%d opened, one call each); reach: "+
		"< 64", n)
}

func (r report) sessions(streams bool, each int) {
	what := "without a stream"
	if streams {
		what = "GET streams open, to the client and to the server"
	}
	r.line("%-50s %6.1f", what, float64(each)/(1<<10))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func bytesOf(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.3g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
