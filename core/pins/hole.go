package pins

import (
	"regexp"
	"strings"
	"time"
)

// A hole is a place in a string that may differ from the approved text. In the lock, the string has
// a placeholder such as ${date} there.

// holeClass is one class of holes.
type holeClass struct {
	name    string
	pattern string // matches the texts that fit into the hole, and nothing else
}

// The patterns are part of the file format: they must not accept more in a later release.
const (
	months = `(?:January|February|March|April|May|June|July|August|September|October|November|` +
		`December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
	days = `(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, |(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?`
)

var holeClasses = []holeClass{
	{"uuid", `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`},
	{"date", `(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}/[0-9]{2}/[0-9]{2}|` +
		`[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{4}|` +
		days + months + ` [0-9]{1,2},? [0-9]{4}|` + days + `[0-9]{1,2} ` + months + ` [0-9]{4})`},
	{"time", `T?[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?`},
	{"path", `/[0-9A-Za-z._~@+/-]{0,63}`},
	{"number", `[0-9]{1,20}`},
}

var (
	placeholder = regexp.MustCompile(`\$\{(uuid|date|time|path|number)\}`)
	// candidate matches a text that fits into a hole. Its groups are in the order of holeClasses.
	candidate = func() *regexp.Regexp {
		var parts []string
		for _, c := range holeClasses {
			parts = append(parts, "("+c.pattern+")")
		}
		return regexp.MustCompile(strings.Join(parts, "|"))
	}()
)

func hasHole(text string) bool { return placeholder.MatchString(text) }

// fits reports whether a text is equal to an approved text but for the holes.
func fits(approved, text string) bool {
	const maxHoles = 64
	holes := placeholder.FindAllStringSubmatchIndex(approved, maxHoles+1)
	if len(holes) > maxHoles {
		return false
	}
	var pattern strings.Builder
	pattern.WriteString(`^`)
	end := 0
	for _, h := range holes {
		pattern.WriteString(regexp.QuoteMeta(approved[end:h[0]]))
		for _, c := range holeClasses {
			if c.name == approved[h[2]:h[3]] {
				pattern.WriteString("(?:" + c.pattern + ")")
			}
		}
		end = h[1]
	}
	pattern.WriteString(regexp.QuoteMeta(approved[end:]) + `$`)
	re, err := regexp.Compile(pattern.String())
	return err == nil && re.MatchString(text)
}

// Surroundings are the texts of this machine and day that a server may repeat in its definitions.
type Surroundings struct {
	Now     time.Time
	Folders []string // absolute paths: the server's working folder, HOME and TMPDIR
}

// recentDays is how old a date may be to be taken for a date that moves.
const recentDays = 31

// knows reports whether a text that fits into a hole of a class comes from the surroundings.
func (s Surroundings) knows(class, text string) bool {
	switch class {
	case "date":
		for _, layout := range []string{"2006-01-02", "2006/01/02", "1/2/2006", "2/1/2006",
			"2.1.2006", "01/02/2006", "02/01/2006", "02.01.2006", "January 2, 2006",
			"Jan 2, 2006", "2 January 2006", "2 Jan 2006", "Monday, January 2, 2006",
			"Monday, 2 January 2006", "Mon Jan 2 2006", "Mon Jan 02 2006", "Mon, 02 Jan 2006"} {
			t, err := time.Parse(layout, text)
			if age := s.Now.Sub(t); err == nil && -48*time.Hour < age &&
				age < (recentDays+1)*24*time.Hour {
				return true
			}
		}
	case "path":
		for _, f := range s.Folders {
			if len(f) > 1 && (text == f || strings.HasPrefix(text, f+"/")) {
				return true
			}
		}
	}
	return false
}
