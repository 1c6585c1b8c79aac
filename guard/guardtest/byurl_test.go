package guardtest

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/suite"
)

// named is a Memory with a URL.
type named struct {
	*Memory
	target string
}

func (n named) Target() string { return n.target }

// TestWrongTargetsAreCaught: a guard may name its target wrongly, find
// another resource, accept a bad URL, or show its password.
func TestWrongTargetsAreCaught(t *testing.T) {
	const target, bad = "guarded://host/a", "guarded://ann:hunter2@host/a"
	mine := named{new(Memory), target}
	refuse := func(u *url.URL) error {
		if u.User != nil {
			return fmt.Errorf("%w target: it has a user", fence.ErrInvalid)
		}
		return nil
	}
	var open func(u *url.URL) (guard.Guard, error)
	guard.Register("guarded", func(_ context.Context, u *url.URL) (guard.Guard, error) { return open(u) })
	for name, c := range map[string]struct {
		open  func(u *url.URL) (guard.Guard, error)
		sound bool
	}{
		"sound":                   {func(u *url.URL) (guard.Guard, error) { return mine, refuse(u) }, true},
		"another resource":        {func(u *url.URL) (guard.Guard, error) { return named{new(Memory), target}, refuse(u) }, false},
		"another target":          {func(u *url.URL) (guard.Guard, error) { return named{mine.Memory, target + "/"}, refuse(u) }, false},
		"anything is good enough": {func(*url.URL) (guard.Guard, error) { return mine, nil }, false},
		"passwords are told": {func(u *url.URL) (guard.Guard, error) {
			if err := refuse(u); err != nil {
				return nil, fmt.Errorf("%w: %s", err, u)
			}
			return mine, nil
		}, false},
	} {
		open = c.open
		if said := suite.Record(t, func(tb testing.TB) { ByURL(tb, mine, bad) }); len(said) > 0 == c.sound {
			t.Errorf("%s: %q", name, said)
		}
	}
}
