package fence_test

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestAMarkThatNoGuardHasWrittenIsNamed: others may write where a
// guard keeps its mark, so Check refuses impossible marks.
func TestAMarkThatNoGuardHasWrittenIsNamed(t *testing.T) {
	for _, m := range []fence.Mark{{}, {Key: "a/b", Token: 7, Grant: ann, Seq: 3}, {Key: "a/b", Token: 7}, {Key: "a/b"}, {Key: "a/b", Token: fence.MaxToken}} {
		if err := m.Check(); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, m := range []fence.Mark{{Token: 7}, {Seq: 1}, {Key: "a//b", Token: 7}, {Key: "a/b", Token: -1}, {Key: "a/b", Token: fence.MaxToken + 1}, {Key: "a/b", Token: 7, Grant: "x"}} {
		if err := m.Check(); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%+v: %v, want invalid", m, err)
		}
	}
}
