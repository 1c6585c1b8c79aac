package storetest

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/suite"
)

// TestASoundStorePasses: what is caught below is caught for its flaw, and not because the store it is in fails anyway.
func TestASoundStorePasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := sound().place(tb)
		h.Patience = 0 // nothing is expected to take long
		return h
	})
}

// TestBrokenStoresAreCaught: every flaw is noticed, and in the behaviour it is a flaw of.
func TestBrokenStoresAreCaught(t *testing.T) {
	var broken []suite.Flaw[*trial]
	for _, f := range flaws() {
		broken = append(broken, suite.Flaw[*trial]{Name: f.name, Group: f.group, Begin: begun(f.place)})
	}
	suite.Caught(t, groups(), broken, "sequences")
}

// place is an empty place for leases with the flaw.
func (f flaw) place(tb testing.TB) Harness {
	p := sound()
	f.spoil(p)
	return p.place(tb)
}

// TestFailuresNamesWhatFails, and only that, as suites of other packages ask for it.
func TestFailuresNamesWhatFails(t *testing.T) {
	f := flaws()[0]
	failures := Failures(t, f.place, f.group)
	for name, said := range failures {
		if !strings.HasPrefix(name, f.group+"/") || len(said) == 0 {
			t.Errorf("%q said %q", name, said)
		}
	}
	if len(failures) == 0 {
		t.Errorf("a store that %s fails nothing in %q", f.name, f.group)
	}
	if failures := Failures(t, func(tb testing.TB) Harness { return sound().place(tb) }, "keys", "facts"); len(failures) > 0 {
		t.Errorf("a sound store: %v", failures)
	}
}
