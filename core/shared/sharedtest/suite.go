package sharedtest

import (
	"testing"
	"time"

	"gatekit/core/shared"
)

// Replicas is how the suite uses a state that several replicas share.
type Replicas struct {
	// Open returns a store of one more replica. It belongs to the same state.
	Open func(t *testing.T) shared.Store
	// Wait lets time pass, for the stores as well.
	Wait func(d time.Duration)
	// Wipe removes everything from the store, as an operator's mistake would. It is nil if the
	// store cannot lose anything.
	Wipe func(t *testing.T)
}

// three returns the stores of three replicas.
func (r Replicas) three(t *testing.T) [3]shared.Store {
	t.Helper()
	return [3]shared.Store{r.Open(t), r.Open(t), r.Open(t)}
}

// Run runs the suite. For each case, it calls with in a subtest, and with calls test once with
// replicas whose state is empty. For a store that uses the clock of the process, with calls test
// within synctest.Test.
func Run(t *testing.T, with func(t *testing.T, test func(*testing.T, Replicas))) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Replicas)
	}{
		{"values", testValues},
		{"keys are different", testKeys},
		{"values expire", testExpiry},
		{"values are taken once", testTake},
		{"swaps lose no change", testSwapRace},
		{"lists", testList},
		{"watch", testWatch},
		{"lock", testLock},
		{"rates", testRates},
		{"rates of three replicas", testRateRace},
		{"all limits count or none", testAllOrNone},
		{"leases", testLeases},
		{"leases of three replicas", testLeaseRace},
		{"labels and counts", testTrack},
		{"counts of three replicas", testTrackRace},
		{"counts of the last minute", testMinute},
		{"bounds", testBounds},
		{"mistakes of callers", testMistakes},
		{"lost state", testLost},
	} {
		t.Run(c.name, func(t *testing.T) { with(t, c.test) })
	}
}

// ttl is a short time to keep things. It is long enough for a slow machine to use them before.
const ttl = 10 * time.Second
