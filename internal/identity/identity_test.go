package identity

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/croft-dev/croft/tenure"
)

// TestNamesAreFitForRecords: whatever the machine is called, its name can be
// stored and shown on one line.
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

// TestDefaultNamesFitTheLaw: whatever the machine is called.
func TestDefaultNamesFitTheLaw(t *testing.T) {
	for _, host := range []string{"box1", strings.Repeat("ö", 300), "a\nb\xff"} {
		for _, name := range []string{owner(printable(host)), instance(printable(host))} {
			req := tenure.Request{Verb: tenure.Acquire, Key: "k", Secret: tenure.NewSecret(), TTL: time.Minute, Owner: name}
			if err := req.Check(); err != nil {
				t.Errorf("host %q: %v", host, err)
			}
		}
	}
}
