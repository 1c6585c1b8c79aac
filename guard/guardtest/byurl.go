package guardtest

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// ByURL checks the URLs of a guard. The target of mine must open another handle
// on the same resource, and an operator can raise the mark through it. Each bad
// target must be refused as invalid, and the error must not show a password.
// ByURL raises the mark.
func ByURL(tb testing.TB, mine guard.Guard, bad ...string) {
	tb.Helper()
	ctx := tb.Context()
	g, err := guard.Open(ctx, mine.Target())
	if err != nil {
		tb.Fatalf("%s: %v", mine.Target(), err)
	}
	defer g.Close()
	if g.Target() != mine.Target() {
		tb.Errorf("the same target is %q and %q", g.Target(), mine.Target())
	}
	before, err := mine.Mark(ctx)
	if err != nil {
		tb.Fatalf("Mark: %v", err)
	}
	s := stamp(before.Token+1, 1, 0)
	if !before.IsZero() {
		s.Key = before.Key
	}
	if _, err := g.Raise(ctx, s); err != nil {
		tb.Fatalf("Raise by URL: %v", err)
	}
	if mark, err := mine.Mark(ctx); err != nil || mark != s.Mark() {
		tb.Errorf("raised by URL to %+v, the first handle's mark is %+v, %v", s, mark, err)
	}
	for _, target := range bad {
		opened, err := guard.Open(ctx, target)
		if !errors.Is(err, fence.ErrInvalid) {
			tb.Errorf("%.90s: %v, want invalid", target, err)
		}
		if err == nil {
			_ = opened.Close()
			continue
		}
		if u, fault := url.Parse(target); fault == nil {
			if password, has := u.User.Password(); has && strings.Contains(err.Error(), password) {
				tb.Errorf("%s: the message has the password in it: %v", target, err)
			}
		}
	}
}
