package console

import (
	"fmt"
	"time"

	"gatekit/core/display"
)

// plot is a bar chart, in units of the SVG. A table beside it has its figures.
type plot struct {
	Title         string
	Width, Height int
	Bars          []bar
	Labels        []label
	Lines         []axis
}

type bar struct {
	X, Y, Width, Height float64
	Class               string // bar, bar-quiet or bar-failed
	Title               string
}

type label struct {
	X, Y   float64
	Anchor string // start, middle or end
	Text   string
}

type axis struct{ X1, Y1, X2, Y2 float64 }

// Sizes of plots.
const (
	plotWidth    = 440 // so that the labels can be read in a narrow window
	barHeight    = 14
	barGap       = 6
	labelWidth   = 140
	valueWidth   = 70
	maxBarLabel  = 20 // bytes
	columnHeight = 120
)

// minColumns is the number of steps of time from which on a plot shows more than its figures do.
const minColumns = 3

// plotTimeline plots the calls by time as columns; refused and failed calls are their lower parts.
// With few steps, the plot has no bars.
func plotTimeline(t *Timeline) plot {
	p := plot{Title: fmt.Sprintf("Calls by time, in steps of %s", span(t.Width)), Width: plotWidth,
		Height: columnHeight + 40}
	if len(t.Buckets) < minColumns {
		return p
	}
	highest := 1
	for _, b := range t.Buckets {
		highest = max(highest, b.Calls)
	}
	const left, top = 50.0, 10.0
	step := (plotWidth - left - 10) / float64(max(len(t.Buckets), 12))
	for i, b := range t.Buckets {
		if b.Calls == 0 {
			continue
		}
		title := fmt.Sprintf("%s: %d calls, %d refused, %d failed",
			t.Start.Add(time.Duration(i)*t.Width).UTC().Format("2006-01-02 15:04"), b.Calls,
			b.Refused, b.Failed)
		bad := float64(b.Refused+b.Failed) * columnHeight / float64(highest)
		all := float64(b.Calls) * columnHeight / float64(highest)
		x := left + float64(i)*step
		p.Bars = append(p.Bars, bar{x, top + columnHeight - all, step * .8, all - bad, "bar",
			title})
		if bad > 0 {
			p.Bars = append(p.Bars, bar{x, top + columnHeight - bad, step * .8, bad, "bar-failed",
				title})
		}
	}
	p.Lines = []axis{{left, top + columnHeight, plotWidth - 10, top + columnHeight}}
	p.Labels = []label{{left - 6, top + 8, "end", fmt.Sprint(highest)},
		{left - 6, top + columnHeight, "end", "0"}}
	stamp := func(i int) string {
		return t.Start.Add(time.Duration(i) * t.Width).UTC().Format("01-02 15:04")
	}
	p.Labels = append(p.Labels, label{left, top + columnHeight + 16, "start", stamp(0)})
	if last := len(t.Buckets) - 1; last >= 6 {
		p.Labels = append(p.Labels, label{left + float64(last+1)*step, top + columnHeight + 16,
			"end", stamp(last)})
	}
	return p
}

// span returns a duration without units that are zero.
func span(d time.Duration) string {
	switch {
	case d >= 24*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

// row adds the label of row i of a plot with horizontal bars, and returns its upper edge.
func (p *plot) row(i int, name string) float64 {
	if name == "" {
		name = "-"
	}
	y := float64(4 + i*(barHeight+barGap))
	p.Labels = append(p.Labels, label{labelWidth - 8, y + barHeight - 3, "end",
		display.Clip(name, maxBarLabel)})
	return y
}

// plotRows returns a plot for n rows of horizontal bars.
func plotRows(title string, n int) plot {
	height := 8 + n*(barHeight+barGap)
	return plot{Title: title, Width: plotWidth, Height: height,
		Lines: []axis{{labelWidth, 0, labelWidth, float64(height)}}}
}

// plotCalls plots the calls of each row; refused and failed calls come first.
func plotCalls(title string, rows []statsRow) plot {
	p := plotRows(title+" by calls; refused and failed calls in red", len(rows))
	most := 1
	for _, r := range rows {
		most = max(most, r.All)
	}
	scale := (plotWidth - labelWidth - valueWidth) / float64(most)
	for i, r := range rows {
		y := p.row(i, r.Name)
		title := fmt.Sprintf("%s: %d calls, %d refused, %d failed", display.Clip(r.Name,
			maxShownText), r.All, r.Refused, r.Failed)
		bad := float64(r.Refused+r.Failed) * scale
		all := float64(r.All) * scale
		if bad > 0 {
			p.Bars = append(p.Bars, bar{labelWidth, y, bad, barHeight, "bar-failed", title})
		}
		if all > bad {
			p.Bars = append(p.Bars, bar{labelWidth + bad, y, all - bad, barHeight, "bar", title})
		}
		p.Labels = append(p.Labels, label{labelWidth + max(all, bad) + 6, y + barHeight - 3,
			"start", fmt.Sprint(r.All)})
	}
	return p
}

// plotLatency plots the 50th and the 95th percentile of each row.
func plotLatency(title string, rows []statsRow) plot {
	p := plotRows(title+" by latency: P50, and P95 in grey", len(rows))
	var longest time.Duration = 1
	for _, r := range rows {
		longest = max(longest, r.P95)
	}
	scale := (plotWidth - labelWidth - valueWidth) / float64(longest)
	for i, r := range rows {
		y := p.row(i, r.Name)
		if r.P95 == 0 {
			continue // no call was answered
		}
		title := fmt.Sprintf("%s: P50 %s, P95 %s", display.Clip(r.Name, maxShownText),
			shortDuration(r.P50), shortDuration(r.P95))
		p.Bars = append(p.Bars,
			bar{labelWidth, y, float64(r.P95) * scale, barHeight, "bar-quiet", title},
			bar{labelWidth, y + 3, float64(r.P50) * scale, barHeight - 6, "bar", title})
		p.Labels = append(p.Labels, label{labelWidth + float64(r.P95)*scale + 6,
			y + barHeight - 3, "start", shortDuration(r.P95)})
	}
	return p
}
