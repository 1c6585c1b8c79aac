package croft

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestAnOrdinaryProgramImportsCroftAndABackend: the examples import no package
// of the laws or contracts. Package croft has the names that they need.
func TestAnOrdinaryProgramImportsCroftAndABackend(t *testing.T) {
	const module = "github.com/croft-dev/croft"
	file, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(path, module+"/") && !strings.HasPrefix(path, module+"/backend/") {
			t.Errorf("an example imports %s", path)
		}
	}
}

// TestARefusedAcquireTellsWhy: a program tells the four reasons apart by the
// names of this package.
func TestARefusedAcquireTellsWhy(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(nil, nil)
		nothing := func(context.Context, *Lease) error { return nil }
		if err := c.Every(r.Context(), "period", time.Hour, nil, nothing); err != nil {
			r.Fatal(err)
		}
		if err := c.HoldFor(r.Context(), "hold", time.Hour, nil, nothing); err != nil {
			r.Fatal(err)
		}
		if _, err := c.Reserve(r.Context(), "reserved", "bob", ByHand{Note: "test"}); err != nil {
			r.Fatal(err)
		}
		if _, err := c.Acquire(r.Context(), "held", nil); err != nil {
			r.Fatal(err)
		}
		for key, o := range map[string]*LeaseOptions{"period": {Every: time.Hour}, "hold": nil, "reserved": nil, "held": nil} {
			_, err := r.client(nil, nil).Acquire(r.Context(), key, o)
			want := map[string]tenure.Why{"period": WhyPeriod, "hold": WhyHold, "reserved": WhyReserved, "held": WhyHeld}[key]
			var held *HeldError
			if !errors.Is(err, ErrHeld) || !errors.As(err, &held) || held.Why != want {
				r.Errorf("%s: %v", key, err)
			}
		}
	})
}
