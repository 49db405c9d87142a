package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"gatekit/core/display"
)

// maxShownText is the number of bytes of a name or a reason that a page shows.
const maxShownText = 500

// functions are the functions that templates can call.
var functions = template.FuncMap{
	"ago":      func(t time.Time) string { return ago(time.Since(t)) },
	"bytes":    byteSize,
	"clip":     func(text string) string { return display.Clip(text, maxShownText) },
	"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"fraction": func(t time.Time) string { return t.UTC().Format(".000") },
	"day":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"duration": shortDuration,
	"join": func(between string, texts []string) string {
		return strings.Join(cleanList(texts), between)
	},
	"remaining": remaining,
	"visible":   visible,
}

// ago returns an age in words.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// byteSize returns a number of bytes with at most three digits.
func byteSize(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.3g kB", float64(n)/1000)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.3g GB", float64(n)/1e9)
}

// shortDuration returns a duration with about three digits, or "" for none.
func shortDuration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
