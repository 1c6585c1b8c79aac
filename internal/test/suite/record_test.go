package suite

import (
	"slices"
	"testing"
)

// TestRecordReturnsTheReportsOfACheck: however the check ends. The test that
// calls Record does not fail.
func TestRecordReturnsTheReportsOfACheck(t *testing.T) {
	for name, c := range map[string]struct {
		check func(tb testing.TB)
		said  []string
	}{
		"nothing":       {func(testing.TB) {}, nil},
		"it logs":       {func(tb testing.TB) { tb.Log("a"); tb.Logf("%d", 1) }, nil},
		"it goes on":    {func(tb testing.TB) { tb.Error("a", 1); tb.Errorf("%d", 2); tb.Fail() }, []string{"a1", "2", "failed"}},
		"Fatal ends it": {func(tb testing.TB) { tb.Fatal("a"); tb.Error("b") }, []string{"a"}},
		"so FailNow":    {func(tb testing.TB) { tb.FailNow(); tb.Error("b") }, []string{"failed"}},
		"and Skip":      {func(tb testing.TB) { tb.Skipf("a"); tb.Error("b") }, nil},
		"it panics":     {func(testing.TB) { panic("a") }, []string{"panic: a"}},
		"it knows":      {func(tb testing.TB) { tb.Errorf("%t", tb.Failed()); tb.Errorf("%t", tb.Failed()) }, []string{"false", "true"}},
	} {
		if said := Record(t, c.check); !slices.Equal(said, c.said) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestACheckIsCleanedUpAfter: as after a test. The context has ended, the last
// clean-up comes first, and all of them run, even if one fails.
func TestACheckIsCleanedUpAfter(t *testing.T) {
	said := Record(t, func(tb testing.TB) {
		tb.Cleanup(func() { tb.Error("first") })
		tb.Cleanup(func() { tb.Cleanup(func() { tb.Error("added") }); tb.Fatal("second") })
		tb.Cleanup(func() { tb.Errorf("third: %v", tb.Context().Err()) })
		if err := tb.Context().Err(); err != nil {
			tb.Error(err)
		}
		panic("the check")
	})
	if want := []string{"panic: the check", "third: context canceled", "second", "added", "first"}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}
