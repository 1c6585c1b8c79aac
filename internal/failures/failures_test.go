package failures_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store"
)

func TestManyFailuresAreCounted(t *testing.T) {
	var l failures.List
	if err := l.Err(); err != nil {
		t.Errorf("without failures: %v", err)
	}
	for n := range 1000 {
		l.Add(fmt.Errorf("%w: object %d", store.ErrDamaged, n))
		if n == 9 && strings.Contains(l.Err().Error(), "more") {
			t.Errorf("of ten: %v", l.Err())
		}
	}
	err := l.Err()
	if !store.OnlyDamaged(store.Unknown(err)) || !strings.Contains(err.Error(), "object 9\nand 990 more") {
		t.Errorf("of a thousand: %v", err)
	}
}

// TestAnotherFailureIsNotTakenForDamage: it comes after more damaged records
// than are named.
func TestAnotherFailureIsNotTakenForDamage(t *testing.T) {
	var l failures.List
	for range 100 {
		l.Add(fmt.Errorf("%w: planted", store.ErrDamaged))
	}
	errCut := errors.New("the connection broke")
	l.Add(errCut)
	err := l.Err()
	if !errors.Is(err, errCut) || store.OnlyDamaged(err) || !strings.Contains(err.Error(), "planted") {
		t.Errorf("%v", err)
	}
}
