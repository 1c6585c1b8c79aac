package guardtest

import (
	"context"
	"io"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/suite"
)

// TestEveryWrongWayToWriteAnywayIsCaught: each variant makes the write, and
// does not leave the mark as it was.
func TestEveryWrongWayToWriteAnywayIsCaught(t *testing.T) {
	for name, move := range map[string]func(was fence.Mark, s fence.Stamp) fence.Mark{
		"lowers the mark to the stale stamp": func(_ fence.Mark, s fence.Stamp) fence.Mark { return s.Mark() },
		"forgets the mark":                   func(fence.Mark, fence.Stamp) fence.Mark { return fence.Mark{} },
		"forgets the number of the mark":     func(was fence.Mark, _ fence.Stamp) fence.Mark { was.Seq = 0; return was },
		"raises the mark by one":             func(was fence.Mark, _ fence.Stamp) fence.Mark { was.Token++; return was },
		"takes the grant of the refused one": func(was fence.Mark, s fence.Stamp) fence.Mark { was.Grant = s.Grant; return was },
		"moves the resource to another key":  func(was fence.Mark, s fence.Stamp) fence.Mark { was.Key = s.Key; return was },
	} {
		t.Run(name, func(t *testing.T) { mustCatch(t, move) })
	}
}

// mustCatch checks a WriteAnyway that moves the mark afterwards.
func mustCatch(t *testing.T, move func(was fence.Mark, s fence.Stamp) fence.Mark) {
	t.Helper()
	m := new(Memory)
	broken := func(
		ctx context.Context, a guard.Artifact, s fence.Stamp, r io.Reader, current guard.Current,
	) (guard.Receipt, error, error) {
		was, err := m.Mark(ctx)
		if err != nil {
			return guard.Receipt{}, nil, err
		}
		receipt, refusal, err := guard.WriteAnyway(ctx, a, s, r, current)
		if refusal != nil && err == nil {
			m.locked(func() { m.mark = move(was, s) })
		}
		return receipt, refusal, err
	}
	h := Harness{Make: func(testing.TB) Resource { return m.Resource() }}
	said := suite.Record(t, func(tb testing.TB) { writtenAnywayBy(tb, h, broken) })
	if len(said) == 0 {
		t.Fatal("not noticed")
	}
	t.Logf("caught by %q: %s", "a write made anyway keeps the mark", said[0])
}
