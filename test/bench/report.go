//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report prints tables. It prints each row as soon as the row is measured. The package comment
// explains the columns.
type report struct{ out io.Writer }

func (r report) printLine(format string, args ...any) {
	fmt.Fprintln(r.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (r report) callsHeader(proxies []string) {
	r.printLine("calls of echo; times in µs, rates in calls per second; goals in brackets")
	r.header(fmt.Sprintf("%-11s %-7s %8s %7s", "route", "era", "size", "workers"), proxies)
}

// header prints the two header lines of a table of calls. first contains the names of the first
// columns.
func (r report) header(first string, proxies []string) {
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
	r.printLine("%s", names)
	r.printLine("%s", columns)
}

func (r report) callsRow(s setup, size int, proxies []string, c comparison) {
	var row strings.Builder
	fmt.Fprintf(&row, "%-11s %-7s %8s %7d | %s", s.route, s.era, formatBytes(size), s.workers,
		directCells(c))
	for i := range proxies {
		row.WriteString(proxyCells(c, i+1))
	}
	if len(proxies) == 2 {
		latency, rate := s.goal(size)
		row.WriteString(ratioCells(c, latency, rate))
	}
	r.printLine("%s", row.String())
}

// ratioCells returns cells with the figures of target 2 (gatekit) divided by the figures of target
// 1. The goals latency and rate follow their quotients.
func ratioCells(c comparison, latency, rate string) string {
	return fmt.Sprintf(" | %4.2f %-8s %4.2f %-8s %4.2f",
		ratio(c.added(2, p50Of), c.added(1, p50Of)), latency,
		c.rate(2)/c.rate(1), rate, ratio(c.cpu(2), c.cpu(1)))
}

func (r report) bridgeHeader(targets []string) {
	r.printLine("\ncalls of echo through gatekit, with a server of the client's era and " +
		"(bridged) with a server of the other era; goal: +p50 ≤ 1.5")
	r.header(fmt.Sprintf("%-11s %-7s %8s %7s", "route", "era", "size", "workers"), targets)
}

func (r report) bridgeRow(s setup, size int, targets []string, c comparison) {
	row := fmt.Sprintf("%-11s %-7s %8s %7d | %s", s.route, s.era, formatBytes(size), s.workers,
		directCells(c))
	for i := range targets {
		row += proxyCells(c, i+1)
	}
	r.printLine("%s", row+ratioCells(c, "(≤ 1.5)", ""))
}

func (r report) pluginsHeader(s setup) {
	r.printLine("\ncalls of echo through gatekit with plugins (%s %s), compared with calls "+
		"without plugins; cpu/call: of gatekit and of its plugins", s.route, s.era)
	if names := scannerNames(); len(names) > 0 {
		r.printLine("built-in plugins that read all texts: %s; each with its defaults",
			strings.Join(names, ", "))
	} else {
		r.printLine("gatekit has no built-in plugin that reads all texts")
	}
	r.variantsHeader("plugins")
}

func (r report) telemetryHeader(s setup) {
	r.printLine("\ncalls of echo through gatekit with telemetry (%s %s), compared with calls "+
		"without telemetry", s.route, s.era)
	r.variantsHeader("telemetry")
}

func (r report) authenticationHeader(s setup) {
	r.printLine("\ncalls of echo through gatekit with authentication (%s %s), compared with calls "+
		"without; [] has the interval of +cpu/call", s.route, s.era)
	r.printLine("%8s %7s  %-24s | %7s %7s %7s | %7s %5s | %8s %9s", "size", "workers",
		"authentication", "p50", "+p50", "+p99", "rate", "share", "gatekit", "+cpu/call")
}

func (r report) authenticationRows(s setup, size int, c comparison) {
	for i, v := range s.variants {
		goal := ""
		if v.name == "jwt" && size == 1<<10 {
			goal = " (≤ 15)"
		}
		added, low, high := c.addedCPU(i)
		r.printLine("%8s %7d  %-24s | %7d %7d %7d | %7.0f %5.2f | %8d %9.1f [%.1f, %.1f]%s",
			formatBytes(size), s.workers, v.name,
			c.p50(i).Microseconds(), c.added(i, p50Of).Microseconds(),
			c.added(i, p99Of).Microseconds(), c.rate(i), c.share(i), c.cpu(i).Microseconds(),
			microseconds(added), microseconds(low), microseconds(high), goal)
	}
}

func (r report) replicasHeader() {
	r.printLine("\ncalls of echo that a replica forwards to another one (http-http legacy), " +
		"compared with calls that it serves itself; bare: a proxy and a server of net/http " +
		"alone, compared with that server; cpu/call: of both processes; [] has the interval of " +
		"the median; goal: +p50 ≤ 150 with one worker")
	r.printLine("%-13s %8s %7s | %7s %7s %7s | %7s %5s | %8s %9s", "", "size", "workers", "p50",
		"+p50", "+p99", "rate", "share", "cpu/call", "+cpu/call")
}

func (r report) sharedHeader() {
	r.printLine("\ncalls of echo that the plugin limits counts in a redis-server on this machine " +
		"(http-http legacy), compared with calls that it counts in its memory; cpu/call: of " +
		"gatekit; [] has the interval of the median; goal: +p50 ≤ 100 of rates with one worker")
	r.printLine("%-13s %8s %7s | %7s %7s %7s | %7s %5s | %8s %9s", "", "size", "workers", "p50",
		"+p50", "+p99", "rate", "share", "cpu/call", "+cpu/call")
}

// pairRow prints the comparison of two targets.
func (r report) pairRow(name string, s setup, size int, c comparison) {
	p50, p50Low, p50High := c.addedWithin(1, p50Of)
	p99, p99Low, p99High := c.addedWithin(1, p99Of)
	cpu, cpuLow, cpuHigh := c.addedCPU(1)
	r.printLine("%-13s %8s %7d | %7d %7d [%d, %d] %7d [%d, %d] | %7.0f %5.2f | %8d %9.1f "+
		"[%.1f, %.1f]", name, formatBytes(size), s.workers, c.p50(0).Microseconds(),
		p50.Microseconds(), p50Low.Microseconds(), p50High.Microseconds(),
		p99.Microseconds(), p99Low.Microseconds(), p99High.Microseconds(),
		c.rate(0), c.share(1), c.cpu(0).Microseconds(),
		microseconds(cpu), microseconds(cpuLow), microseconds(cpuHigh))
}

func (r report) scalingHeader() {
	r.printLine("\ncalls of echo by clients whose requests go to another replica each time " +
		"(http-http), compared with one replica; cpu/call: of all replicas; [] has the " +
		"interval of the median")
	r.printLine("%-13s %8s %7s %8s | %7s %7s | %7s %5s | %8s %9s", "", "size", "workers",
		"replicas", "p50", "+p50", "rate", "share", "cpu/call", "+cpu/call")
}

func (r report) scalingRows(s setup, size int, c comparison) {
	for i := range c {
		cpu, low, high := c.addedCPU(i)
		r.printLine("%-13s %8s %7d %8d | %7d %7d | %7.0f %5.2f | %8.1f %9.1f [%.1f, %.1f]",
			"scaled "+string(s.era), formatBytes(size), s.workers, i+1, c.p50(i).Microseconds(),
			c.added(i, p50Of).Microseconds(), c.rate(i), c.share(i), microseconds(c.cpu(i)),
			microseconds(cpu), microseconds(low), microseconds(high))
	}
}

func (r report) beforeHeader(before string) {
	r.printLine("\nprocessor time of a call, compared with the binary %s; [] has the interval of "+
		"the median", before)
	r.printLine("%-11s %-6s %8s %7s | %8s %8s %9s", "", "era", "size", "workers", "before",
		"cpu/call", "+cpu/call")
}

func (r report) beforeRow(s setup, size int, c comparison) {
	added, low, high := c.addedCPU(1)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(c.cpu(0)) }
	r.printLine("%-11s %-6s %8s %7d | %8.1f %8.1f %+9.1f [%+.1f, %+.1f], %+.1f %% [%+.1f, %+.1f]",
		s.route, s.era, formatBytes(size), s.workers, microseconds(c.cpu(0)),
		microseconds(c.cpu(1)), microseconds(added), microseconds(low), microseconds(high),
		percent(added), percent(low), percent(high))
}

func (r report) viewersHeader(rounds int, length time.Duration, rate int) {
	r.printLine("\nprocessor time of a call while viewers of the console follow the traffic, at "+
		"%d calls a second if the machine is fast enough (%d rounds of four turns of %s; [] has "+
		"the interval of the median; goal: < 1 %% with one viewer)", rate, rounds, length)
	r.printLine("%8s | %7s %7s | %8s %9s", "viewers", "rate", "with", "cpu/call", "+cpu/call")
}

func (r report) viewersRow(viewers int, c comparison) {
	added, low, high := c.addedCPU(1)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(c.cpu(0)) }
	r.printLine("%8d | %7.0f %7.0f | %8.1f %9.2f [%.2f, %.2f], %+.2f %% [%+.2f, %+.2f]",
		viewers, c.rate(0), c.rate(1), microseconds(c.cpu(0)), microseconds(added),
		microseconds(low), microseconds(high), percent(added), percent(low), percent(high))
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r report) variantsHeader(variants string) {
	r.printLine("%8s %7s  %-24s | %7s %7s %7s %-10s | %7s %5s %-9s | %8s %8s", "size", "workers",
		variants, "p50", "+p50", "+p99", "", "rate", "share", "", "gatekit", "plugins")
}

func (r report) variantRows(s setup, size int, c comparison) {
	for i, v := range s.variants {
		latency, rate := v.goal(s.workers, size)
		r.printLine("%8s %7d  %-24s | %7d %7d %7d %-10s | %7.0f %5.2f %-9s | %8d %8d",
			formatBytes(size),
			s.workers, v.name,
			c.p50(i).Microseconds(), c.added(i, p50Of).Microseconds(),
			c.added(i, p99Of).Microseconds(),
			latency, c.rate(i), c.share(i), rate,
			c.cpu(i).Microseconds(), c.perCall(i, childrenCPUOf).Microseconds())
	}
}

func (r report) policiesHeader(s setup) {
	r.printLine("\ncalls of echo through gatekit with policies (%s %s), compared with calls "+
		"without policies; no rule reads the text of the call", s.route, s.era)
	r.variantsHeader("policies")
}

func (r report) auditHeader(s setup) {
	r.printLine("\ncalls of echo through gatekit (%s %s) with each durability of the audit log, "+
		"compared with a gatekit that records no message", s.route, s.era)
	r.printLine("%8s %7s  %-24s | %7s %7s %7s %-10s | %7s %5s %-9s | %8s", "size", "workers",
		"durability",
		"p50", "+p50", "+p99", "", "rate", "share", "", "gatekit")
}

func (r report) auditRows(s setup, size int, c comparison) {
	for i, v := range s.variants {
		latency, rate := "", ""
		if v.name == "write" && size == 1<<10 {
			if s.workers == 1 {
				latency = "(≤ 15)"
			} else {
				rate = "(≥ 0.95)"
			}
		}
		r.printLine("%8s %7d  %-24s | %7d %7d %7d %-10s | %7.0f %5.2f %-9s | %8d",
			formatBytes(size),
			s.workers, v.name,
			c.p50(i).Microseconds(), c.added(i, p50Of).Microseconds(),
			c.added(i, p99Of).Microseconds(),
			latency, c.rate(i), c.share(i), rate, c.cpu(i).Microseconds())
	}
}

// goal returns the goals for a variant, in brackets. A goal is "" if the variant has none. Only the
// built-in plugins and the default rules have goals.
func (v variant) goal(workers, size int) (latency, rate string) {
	if v.name == wrapDefaults && workers == 1 && size == 1<<10 {
		return "(≤ 60)", ""
	}
	if !strings.Contains(v.tables, "use =") {
		return "", ""
	}
	if workers > 1 {
		return "", "(≥ 0.5)"
	}
	return map[int]string{1 << 10: "(≤ 250)", 64 << 10: "(≤ 3000)"}[size], ""
}

// goal returns the goals for a call, in brackets. A goal is "" if there is none.
func (s setup) goal(size int) (latency, rate string) {
	if s.route.hasHTTPClient() && size <= 64<<10 {
		if s.workers == 1 {
			return "(≤ 1.3)", ""
		}
		return "", "(≥ 0.75)"
	}
	if s.route == stdioStdio && s.workers == 1 {
		return "(≤ 2)", ""
	}
	return "", ""
}

// directCells returns the cells of the direct target.
func directCells(c comparison) string {
	return fmt.Sprintf("%7d %7.0f", c.p50(0).Microseconds(), c.rate(0))
}

// proxyCells returns the cells of a proxy.
func proxyCells(c comparison, target int) string {
	return fmt.Sprintf(" | %7d %7d %7.0f %9d", c.added(target, p50Of).Microseconds(),
		c.added(target, p99Of).Microseconds(), c.rate(target),
		c.cpu(target).Microseconds())
}

func (r report) listHeader(s setup, proxies []string) {
	n := s.servers * s.tools
	size := len(appendAnswer(nil, []byte(`{"id":1,"method":"tools/list"}`), n))
	r.printLine("\ntools/list: %d tools (%s) directly from one server, and through gatekit from "+
		"%d servers with %d tools each; goal: < 2 ms added with 1 worker", n, formatBytes(size),
		s.servers, s.tools)
	r.header(fmt.Sprintf("%-28s %7s", "era", "workers"), proxies)
}

func (r report) listRow(s setup, proxies []string, c comparison) {
	row := fmt.Sprintf("%-28s %7d | %s", s.era, s.workers, directCells(c))
	for i := range proxies {
		row += proxyCells(c, i+1)
	}
	r.printLine("%s", row)
}

func (r report) definitionsHeader(s setup) {
	r.printLine("\ntools/list of %d servers with %d tools each through gatekit (%s %s); all lists "+
		"were judged before, or the list of one server has a new tool each time", s.servers,
		s.tools, s.route, s.era)
	r.printLine("%-22s %7s  %-24s | %7s %7s %7s | %7s | %8s %8s", "lists", "workers", "plugins",
		"p50", "+p50", "p99", "rate", "gatekit", "plugins")
}

func (r report) definitionsRows(s setup, c comparison) {
	lists := "judged before"
	if s.newItems {
		lists = "one new tool"
	}
	for i, v := range s.variants {
		r.printLine("%-22s %7d  %-24s | %7d %7d %7d | %7.0f | %8d %8d", lists, s.workers, v.name,
			c.p50(i).Microseconds(), c.added(i, p50Of).Microseconds(),
			median(len(c[i]), func(n int) time.Duration { return c[i][n].p99 }).Microseconds(),
			c.rate(i), c.cpu(i).Microseconds(), c.perCall(i, childrenCPUOf).Microseconds())
	}
}

func (r report) memoryHeader(calls int, sizes []int) {
	r.printLine("\nresident MiB after %d calls of each size, one size after the other; goal "+
		"with 1 worker: < 60",
		calls)
	row := fmt.Sprintf("%-11s %7s %-8s", "route", "workers", "")
	for _, size := range sizes {
		row += fmt.Sprintf(" %9s", formatBytes(size))
	}
	r.printLine("%s %9s", row, "peak")
}

func (r report) memoryRow(s setup, target string, resident []int, peak int) {
	row := fmt.Sprintf("%-11s %7d %-8s", s.route, s.workers, target)
	for _, b := range append(resident, peak) {
		row += fmt.Sprintf(" %9.1f", float64(b)/(1<<20))
	}
	r.printLine("%s", row)
}

func (r report) sessionsHeader(n int) {
	r.printLine("\nresident KiB per idle legacy session over HTTP (%d opened, one call each); "+
		"goal: < 64", n)
}

func (r report) sessionsRow(streams bool, bytes int) {
	state := "without a stream"
	if streams {
		state = "GET streams open, to the client and to the server"
	}
	r.printLine("%-50s %6.1f", state, float64(bytes)/(1<<10))
}

func (r report) principalsHeader(n int) {
	r.printLine("\nresident KiB per idle principal with a JWT of its own (%d served, one call "+
		"each)", n)
}

func (r report) principalsRow(e era, bytes int) {
	r.printLine("%-50s %6.1f", string(e)+" client", float64(bytes)/(1<<10))
}

func (r report) startsHeader(server string, starts int) {
	r.printLine("\ntime from the start of a stdio server until it answers initialize, in ms; "+
		"median of %d starts; [] has the interval of the added time; goal: < 20 ms added with a "+
		"server in Node\nserver: %s", starts, server)
	r.printLine("%-14s %7s %7s | %7s", "", "p50", "cpu", "+p50")
}

func (r report) startsRows(c comparison) {
	added, low, high := c.addedWithin(1, p50Of)
	cells := func(name string, target int) string {
		return fmt.Sprintf("%-14s %7.1f %7.1f |", name, milliseconds(c.p50(target)),
			milliseconds(median(len(c[target]), func(i int) time.Duration {
				return c[target][i].cpu
			})))
	}
	r.printLine("%s", cells("server alone", 0))
	r.printLine("%s %7.1f [%.1f, %.1f]", cells("gatekit wrap", 1), milliseconds(added),
		milliseconds(low), milliseconds(high))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func formatBytes(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.3g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
