package console

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Policies has the policies of the active configuration.
type Policies interface {
	// Policies returns the rules in force.
	Policies(ctx context.Context) (*PolicyList, error)
	// Source returns the source of a rule or a file in PolicyList.
	Source(ctx context.Context, name string) (string, error)
	// Explain explains what the policies decide about a message, a JSON object as "gatekit policy
	// explain" takes it.
	Explain(ctx context.Context, message string) (string, error)
	// Replay evaluates the recorded messages from one record through another with the current
	// policies. through may be 0 for the last record.
	Replay(ctx context.Context, from, through uint64) (*ReplayResult, error)
}

// PolicyList has the policies in force.
type PolicyList struct {
	Enabled bool
	Shadow  bool   // they are only recorded
	Digest  string // identifies the policies
	Counted CountedPeriod
	Rules   []PolicyRule
	Files   []PolicyFile
	Bundles []string
	Hits    []PolicyHit
}

// PolicyRule is a rule of the library.
type PolicyRule struct {
	Name, Title string
	Settings    string // as JSON; "" for none
	Hits        int    // denials in the counted period
	Would       int    // what it would have done if it were enforced
}

// PolicyFile is a .rego file of the user.
type PolicyFile struct {
	Name    string
	Effects string // "2 deny, 1 note"
}

// PolicyHit counts denials by one rule that is in a file or a bundle.
type PolicyHit struct {
	Rule        string
	Hits, Would int
}

// ReplayResult compares recorded verdicts with those of the current policies.
type ReplayResult struct {
	From, Through uint64 // the records that were evaluated
	Cut           bool   // records after Through were left out: too many, or no time
	Differences   []Difference
	More          int // further differences
	Summary       string
}

// Difference is a recorded message with another verdict.
type Difference struct {
	Seq  uint64
	Text string // the message, the recorded action, the action now and its reason
}

// SourceLine is a line of a source.
type SourceLine struct {
	Number int
	Text   string
}

// PoliciesPage returns the page with the policies.
func PoliciesPage(p Policies) Page {
	return Page{Name: "policies", Title: "Policies",
		Data: func(ctx context.Context, r Request) (any, error) {
			list, err := p.Policies(ctx)
			if err != nil {
				return nil, err
			}
			v := policiesView{PolicyList: list, Source: r.Query.Get("source"),
				Message: r.Query.Get("message"), From: r.Query.Get("from"),
				Through: r.Query.Get("through")}
			if list.Enabled {
				v.run(ctx, p)
			}
			return v, nil
		},
	}
}

// policiesView is the data of the template. An error of one part does not hide the others.
type policiesView struct {
	*PolicyList
	Source      string
	Lines       []SourceLine
	SourceError string

	Message      string
	Explanation  string
	ExplainError string

	From, Through string
	Replay        *ReplayResult
	ReplayError   string
}

func (v *policiesView) run(ctx context.Context, p Policies) {
	if v.Source != "" {
		text, err := p.Source(ctx, v.Source)
		if err != nil {
			v.SourceError = errorText(err)
		} else {
			for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				v.Lines = append(v.Lines, SourceLine{i + 1, line})
			}
		}
	}
	if v.Message != "" {
		var err error
		if v.Explanation, err = p.Explain(ctx, v.Message); err != nil {
			v.ExplainError = errorText(err)
		}
	}
	if v.From == "" && v.Through == "" {
		return
	}
	from, err := recordNumber(v.From)
	through, otherErr := recordNumber(v.Through)
	if err = errors.Join(err, otherErr); err == nil {
		v.Replay, err = p.Replay(ctx, from, through)
	}
	if err != nil {
		v.ReplayError = errorText(err)
	}
}

// recordNumber parses the number of a record; "" is 0.
func recordNumber(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, errors.New("the number of a record is a whole number, such as 41")
	}
	return n, nil
}

// Next returns the first record that was left out.
func (r *ReplayResult) Next() uint64 { return r.Through + 1 }
