package workcmd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// failingLedger answers with one error after the other, and then calls end.
type failingLedger struct {
	work.Ledger
	errs []error
	end  func()
}

func (l *failingLedger) Apply(context.Context, []work.Request) []work.Answer {
	err := l.errs[0]
	if l.errs = l.errs[1:]; len(l.errs) == 0 {
		l.end()
	}
	return []work.Answer{{Err: err}}
}

// TestAFaultIsAskedOnce: and it is told as such, unless an earlier try may have
// taken effect.
func TestAFaultIsAskedOnce(t *testing.T) {
	lost, refused := store.Unknown(errors.New("the reply is lost")), store.Fault(errors.New("refused"))
	a := &app{&cli.App{Timeout: time.Minute}}
	for want, errs := range map[error][]error{refused: {refused, nil}, lost: {lost, refused}} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := &failingLedger{errs: errs, end: cancel}
		if err := a.apply(ctx, l, make([]work.Request, 1))[0].Err; !errors.Is(err, want) {
			t.Errorf("the ledger says %v: %v, want %v", errs, err, want)
		}
	}
}
