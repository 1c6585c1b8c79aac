package failures_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/failures"
)

func TestManyFailuresAreCounted(t *testing.T) {
	var l failures.List
	if err := l.Err(); err != nil {
		t.Errorf("without failures: %v", err)
	}
	errDamaged := errors.New("damaged")
	for n := range 1000 {
		l.Add(fmt.Errorf("%w: object %d", errDamaged, n))
		if n == 9 && strings.Contains(l.Err().Error(), "more") {
			t.Errorf("of ten: %v", l.Err())
		}
	}
	err := l.Err()
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "object 9\nand 990 more") {
		t.Errorf("of a thousand: %v", err)
	}
}
