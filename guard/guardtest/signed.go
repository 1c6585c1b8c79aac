package guardtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
)

// issuedStamps: nobody can forge a stamp for a guard with keys. The mark keeps
// no signature, so a handle without keys goes on with it.
func issuedStamps(t testing.TB, h Harness) {
	p := newProbe(t, h)
	if p.res.Signed == nil {
		return
	}
	key, stranger := signed.NewKey(), signed.NewKey()
	keyed := &probe{Handle: p.res.Signed(t, key.Public()), t: t, ctx: p.ctx, res: p.res}
	first, newer, newest := stamp(10, 1, 1), stamp(11, 2, 0), stamp(12, 3, 0)
	keyed.mustWrite(key.Sign(first), "first")
	p.holds(state{first.Mark(), []byte("first"), true}, "after a signed write")
	changed := key.Sign(first)
	changed.Token = newer.Token
	for name, s := range map[string]fence.Stamp{
		"without a signature":              newer,
		"that a stranger has signed":       stranger.Sign(newer),
		"with the signature of another":    changed,
		"with a signature of another form": {Key: usual, Token: 11, Grant: grant(2), Signature: "none"},
	} {
		if err := keyed.Write(p.ctx, s, []byte("never")); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("a write with a stamp %s: %v, want an error that matches fence.ErrInvalid", name, err)
		}
		if _, err := keyed.Raise(p.ctx, s); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("a raise with a stamp %s: %v, want an error that matches fence.ErrInvalid", name, err)
		}
		p.holds(state{first.Mark(), []byte("first"), true}, "after a stamp "+name)
	}
	second := key.Sign(first)
	second.Seq = 2
	keyed.mustWrite(second, "second")
	keyed.mustRaise(key.Sign(newer))
	p.holds(state{newer.Mark(), []byte("second"), true}, "after a signed raise")
	if err := keyed.Write(p.ctx, key.Sign(first), []byte("late")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a signed stamp below the mark: %v, want it refused as stale", err)
	}
	if a, ok := keyed.Guard.(guard.Artifact); ok {
		_, refusal, err := guard.WriteAnyway(p.ctx, a, key.Sign(first), strings.NewReader("never"), nil)
		if !errors.Is(refusal, fence.ErrStale) || !errors.Is(err, fence.ErrStale) {
			t.Errorf("a stale write in a trial run: refusal %v, error %v; want both stale", refusal, err)
		}
		p.holds(state{newer.Mark(), []byte("second"), true}, "after a trial run with keys")
	}
	p.mustWrite(newest, "without keys")
	p.mustWrite(stranger.Sign(newest), "without keys, signed")
	p.holds(state{newest.Mark(), []byte("without keys, signed"), true}, "after writes through a handle without keys")
}

// keyed is a handle on a Memory that has keys.
type keyed struct {
	*Memory
	keys *signed.Keys
}

// Raise verifies the stamp first.
func (k keyed) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := k.keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	return k.Memory.Raise(ctx, stamp)
}

// Write verifies the stamp first.
func (k keyed) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := k.keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	return k.Memory.Write(ctx, stamp, r)
}
