package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

func TestARekeyNeedsAKeyAnActorAndAReasonOnOneLine(t *testing.T) {
	longest := strings.Repeat("x", guard.MaxNote)
	if err := guard.CheckRekey("a/b", strings.Repeat("é", guard.MaxActor/2), longest); err != nil {
		t.Errorf("the longest allowed: %v", err)
	}
	for name, c := range map[string][3]string{
		"no key":               {"", "ann", "why"},
		"a bad key":            {"a//b", "ann", "why"},
		"no actor":             {"a", "", "why"},
		"a blank actor":        {"a", " ", "why"},
		"no note":              {"a", "ann", ""},
		"a blank note":         {"a", "ann", "\t"},
		"a long actor":         {"a", strings.Repeat("x", guard.MaxActor+1), "why"},
		"a long note":          {"a", "ann", longest + "x"},
		"an actor not UTF-8":   {"a", "\xff", "why"},
		"a note of two lines":  {"a", "ann", "because\nso"},
		"a note with a bell":   {"a", "ann", "ding\a"},
		"a note not valid":     {"a", "ann", "why\xff"},
		"an actor of two line": {"a", "ann\nbob", "why"},
	} {
		if err := guard.CheckRekey(c[0], c[1], c[2]); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
