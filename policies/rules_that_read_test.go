package policies_test

import (
	"slices"
	"testing"
)

func TestRulesThatReadAMember(t *testing.T) {
	s := loaded(t, `deny contains "no" if by_bob
by_bob if input.principal.subject == "bob"
hide contains "x" if "l" in input.session.labels
note contains input.method`)
	for _, c := range []struct{ path, want []string }{
		{[]string{"principal"}, []string{"t: deny"}},
		{[]string{"session", "labels"}, []string{"t: hide"}},
		{[]string{"session", "calls"}, nil},
		{[]string{"findings"}, nil},
	} {
		if got := s.RulesThatRead(c.path...); !slices.Equal(got, c.want) {
			t.Errorf("input.%v is read by %v, want %v", c.path, got, c.want)
		}
	}
	if s.SetsLabels() || !loaded(t, `label contains "l"`).SetsLabels() {
		t.Error("SetsLabels does not report whether there is a label rule")
	}
}
