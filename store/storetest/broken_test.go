package storetest

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/suite"
)

// TestASoundStorePasses: so the stores below fail because of their flaws.
func TestASoundStorePasses(t *testing.T) {
	Run(t, func(tb testing.TB) Harness {
		h := sound().place(tb)
		h.Patience = 0 // the default: nothing takes long here
		return h
	})
}

// TestBrokenStoresAreCaught: the suite notices every flaw, in the checks of the
// behaviour that is broken.
func TestBrokenStoresAreCaught(t *testing.T) {
	var broken []suite.Flaw[*trial]
	for _, f := range flaws() {
		broken = append(broken, suite.Flaw[*trial]{Name: f.name, Group: f.group, Begin: begun(f.place)})
	}
	suite.Caught(t, groups(), broken, "sequences")
}

// place makes an empty place whose store has the flaw.
func (f flaw) place(tb testing.TB) Harness {
	p := sound()
	f.spoil(p)
	return p.place(tb)
}

// TestFailuresNamesWhatFails: Failures returns the failed checks, and no
// others.
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
