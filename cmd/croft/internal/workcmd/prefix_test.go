package workcmd

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/work"
)

func TestTheIDBeforeAPrefixIsTheHighestBelowIt(t *testing.T) {
	for prefix, want := range map[string]work.ID{
		"0000": "",
		"0001": work.ID("0000" + strings.Repeat("f", 28)),
		"0a00": work.ID("09" + strings.Repeat("f", 30)),
		"abcd": work.ID("abcc" + strings.Repeat("f", 28)),
	} {
		if got := idBefore(prefix); got != want || got != "" && !got.Valid() {
			t.Errorf("before %s: %s, want %s", prefix, got, want)
		}
	}
}

func TestTextsThatCanBeginNoIDAreRefused(t *testing.T) {
	for _, bad := range []string{"", "abc", "ABCD", "xyz1", "0123 ", strings.Repeat("0", 33)} {
		if checkIDs("0198", bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
