package learn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"gatekit/policies"
)

// Source calls a function with each recorded message, in order, until the function returns an
// error. Learn calls it several times, and it must give the same messages each time.
type Source func(f func(*policies.Case) error) error

// Options select what to learn from.
type Options struct {
	// Wants reports whether to learn from a request. Nil means all requests.
	Wants func(*policies.Case) bool
	// Progress gets a line of text before each step. Nil means no progress.
	Progress func(text string)
}

// Validation is the result of checking a policy against requests that it was not learned from. For
// each part of the log, a policy is learned from the other parts and evaluated for this part.
type Validation struct {
	Parts    int    `json:"parts"`    // 0 if the log has too few requests
	Of       string `json:"of"`       // what a part is: days, or equal shares of one day
	Requests int    `json:"requests"` // evaluated
	Refused  int    `json:"refused"`
	// Rules has the number of refused requests of each rule that refused any.
	Rules map[string]int `json:"rules"`
	// General are the rules about values that were made more general, because they refused honest
	// requests.
	General []string `json:"general"`
}

// Share returns the expected share of honest requests that the policy refuses, from 0 to 1.
func (v *Validation) Share() float64 {
	if v.Requests == 0 {
		return 0
	}
	return float64(v.Refused) / float64(v.Requests)
}

const (
	maxParts      = 5
	minToValidate = 50 // requests
	maxRounds     = maxLevel + 1
)

// Learn learns a policy from the honest requests of a log. It reads the log three times or more. An
// error of the source or of ctx ends it.
func Learn(ctx context.Context, source Source, o Options) (*Policy, error) {
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	honest := func(f func(*policies.Case) error) (int, error) {
		return honestRequests(source, func(c *policies.Case) error {
			if err := ctx.Err(); err != nil || o.Wants != nil && !o.Wants(c) {
				return err
			}
			return f(c)
		})
	}
	progress("counting the requests")
	count, days := 0, map[string]int{}
	flagged, err := honest(func(c *policies.Case) error {
		count++
		if day := dayOf(c); len(days) < 4000 {
			days[day]++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, errors.New("there is no request to learn from: none was answered and passed " +
			"without findings")
	}
	parts := newParts(count, days)
	progress(fmt.Sprintf("learning from %d requests", count))
	whole, without := newLearner(), make([]*learner, parts.number)
	for i := range without {
		without[i] = newLearner()
	}
	index := 0
	if _, err := honest(func(c *policies.Case) error {
		part := parts.of(index, c)
		index++
		whole.add(c)
		for i, l := range without {
			if i != part {
				l.add(c)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	levels, v := map[string]int{}, Validation{}
	for round := 1; round <= maxRounds && parts.number > 0; round++ {
		progress(fmt.Sprintf("checking against %d held-out parts, round %d", parts.number, round))
		if v, err = validate(ctx, honest, parts, without, levels); err != nil {
			return nil, err
		}
		if !widen(levels, v) {
			break
		}
	}
	p := whole.policy(levels)
	p.Flagged, p.Validation = flagged, v
	p.Validation.General = slices.Sorted(maps.Keys(levels))
	return p, nil
}

// widen makes the rules about values that refused honest requests more general, and reports whether
// there is any.
func widen(levels map[string]int, v Validation) (changed bool) {
	for rule := range v.Rules {
		if valueRule.MatchString(rule) && levels[rule] < maxLevel {
			levels[rule]++
			changed = true
		}
	}
	return changed
}

var valueRule = regexp.MustCompile(`^learned/[^/]+/[^/]+/argument/`)

// validate evaluates each part of the log with the policy that was learned from the other parts.
func validate(ctx context.Context, honest func(func(*policies.Case) error) (int, error),
	parts parts, without []*learner, levels map[string]int) (Validation, error) {
	v := Validation{Parts: parts.number, Of: parts.what, Rules: map[string]int{}}
	stages := make([]*policies.Stage, len(without))
	for i, l := range without {
		stage, err := l.policy(levels).load()
		if err != nil {
			return v, err
		}
		stages[i] = stage
	}
	index := 0
	_, err := honest(func(c *policies.Case) error {
		stage := stages[parts.of(index, c)]
		index++
		v.Requests++
		o := stage.Evaluate(ctx, c)
		if o.Action == "pass" {
			return nil
		}
		v.Refused++
		for _, rule := range Rules(o.Reason) {
			v.Rules[rule]++
		}
		return nil
	})
	return v, err
}

var ruleInReason = regexp.MustCompile(`(?:^|; )(learned/[A-Za-z0-9_./-]+): `)

// Rules returns the learned rules in the reason of a denial.
func Rules(reason string) (rules []string) {
	for _, m := range ruleInReason.FindAllStringSubmatch(reason, -1) {
		if !slices.Contains(rules, m[1]) {
			rules = append(rules, m[1])
		}
	}
	return rules
}

// load compiles the policy.
func (p *Policy) load() (*policies.Stage, error) {
	dir, err := os.MkdirTemp("", "gatekit-learn-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := p.Write(dir, "enforce"); err != nil {
		return nil, err
	}
	return policies.Load(policies.Options{Files: []string{dir}, ReuseDecisions: true})
}

// Write writes the files of the policy to a folder, which it makes if it does not exist. The folder
// must have no files but those that File.Remove left there.
func (p *Policy) Write(dir, mode string) error {
	if err := checkUnused(dir); err != nil {
		return err
	}
	files := p.Files(mode)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(file, files[name], 0o640); err != nil {
			return err
		}
	}
	for _, name := range []string{noRulesTestFile, noRulesFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkUnused returns an error if a folder has files other than those that File.Remove left there.
func checkUnused(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir(), path == filepath.Join(dir, noRulesFile),
			path == filepath.Join(dir, noRulesTestFile):
			return err
		}
		return fmt.Errorf("the folder %s is not empty: it has %s", dir, path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// parts divides a log into parts of whole days, or into equal shares of one day.
type parts struct {
	number int
	what   string
	total  int            // requests
	byDay  map[string]int // nil for equal shares
}

func dayOf(c *policies.Case) string { return c.Time.UTC().Format(time.DateOnly) }

func newParts(count int, days map[string]int) parts {
	if count < minToValidate {
		return parts{}
	}
	if len(days) < 2 {
		return parts{number: maxParts, what: "equal shares of one day", total: count}
	}
	p := parts{number: min(maxParts, len(days)), what: "days", byDay: map[string]int{}}
	for i, day := range slices.Sorted(maps.Keys(days)) {
		p.byDay[day] = i * p.number / len(days)
	}
	return p
}

// of returns the part of the request with an index.
func (p parts) of(index int, c *policies.Case) int {
	switch {
	case p.number == 0:
		return 0
	case p.byDay != nil:
		return p.byDay[dayOf(c)]
	}
	return index * p.number / p.total
}
