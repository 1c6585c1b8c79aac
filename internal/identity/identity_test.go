package identity

import (
	"strings"
	"testing"
	"unicode"

	"github.com/croft-dev/croft/tenure"
)

// TestNamesAreFitForRecords: whatever the machine is called, its name can be stored and shown on one line.
func TestNamesAreFitForRecords(t *testing.T) {
	for _, name := range []string{Owner(), Instance()} {
		if name == "" || len(name) > tenure.MaxName || strings.IndexFunc(name, unicode.IsControl) >= 0 {
			t.Errorf("%q", name)
		}
	}
	if one, other := Instance(), Instance(); one == other {
		t.Error("two runs have one name")
	}
	if got := clip(strings.Repeat("é", tenure.MaxName)); len(got) > tenure.MaxName || !strings.HasSuffix(got, "é") {
		t.Errorf("clipped to %d bytes", len(got))
	}
	if got := printable("a\nb\xff"); got != "ab" {
		t.Errorf("printable: %q", got)
	}
}
