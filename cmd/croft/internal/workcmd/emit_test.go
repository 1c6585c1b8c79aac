package workcmd

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// blanks is an endless file of empty lines.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	p[len(p)-1] = '\n'
	return len(p), nil
}

// TestNoEffectIsLostBehindTheLimit: croft reads the file up to a limit, and
// fails if there is more. Otherwise it would complete the item without its last
// effect.
func TestNoEffectIsLostBehindTheLimit(t *testing.T) {
	effects, err := parseEffects(io.MultiReader(io.LimitReader(blanks{}, mostOfEffects+100), strings.NewReader("\n"+`{"name":"mail"}`)))
	if !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an effect behind the limit: %+v, %v; want invalid", effects, err)
	}
	effects, err = parseEffects(io.MultiReader(io.LimitReader(blanks{}, 1<<20), strings.NewReader("\n"+`{"name":"mail"}`)))
	if err != nil || len(effects) != 1 {
		t.Errorf("an effect after blank lines: %+v, %v", effects, err)
	}
}
