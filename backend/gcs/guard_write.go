package gcs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// Write replaces the content with that of r. It takes two requests for content
// of at most GuardOptions.InMemory bytes. For longer content it takes six, and
// one more for every 8 MiB.
func (g *Guard) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	if ctx.Err() != nil {
		return guard.Receipt{}, store.Unknown(wait.Ended(ctx))
	}
	head, err := wait.For(ctx, func() ([]byte, error) {
		var b bytes.Buffer
		_, err := b.ReadFrom(io.LimitReader(r, int64(g.inMemory)+1))
		return b.Bytes(), err
	})
	if err != nil {
		return guard.Receipt{}, err
	}
	if len(head) > g.inMemory {
		return g.writeLong(ctx, stamp, head, r)
	}
	return g.write(ctx, stamp, int64(len(head)), func(ctx context.Context, s state, meta map[string]string) error {
		return g.upload(ctx, s, meta, head)
	})
}

// write decides and sends content that can be sent again.
func (g *Guard) write(
	ctx context.Context, stamp fence.Stamp, size int64,
	send func(ctx context.Context, s state, meta map[string]string) error,
) (guard.Receipt, error) {
	admit := func(m fence.Mark) (fence.Mark, error) { return m.Admit(stamp) }
	before, mark, err := g.settle(ctx, admit, func(ctx context.Context, s state, mark fence.Mark, nonce string) error {
		meta, err := s.metadata(mark, nonce, nil)
		if err != nil {
			return err
		}
		delete(meta, metaEmpty)
		meta[metaWrites] = strconv.FormatUint(s.writes()+1, 10)
		return g.commit(ctx, nonce, rightCreate, func(ctx context.Context) error { return send(ctx, s, meta) })
	})
	if err != nil {
		return guard.Receipt{}, err
	}
	return guard.Receipt{Mark: mark, Bytes: size, Adopted: before.written() && before.mark.IsZero()}, nil
}

// upload replaces the object in one request.
func (g *Guard) upload(ctx context.Context, s state, meta map[string]string, data []byte) error {
	o := s.carry(g.contentType, meta, data)
	o.Name = g.object
	_, err := g.bucket.insert(ctx, o, data, s.conditions())
	// Otherwise the object was deleted meanwhile.
	if judge(err) == missing && (s.attrs == nil || bucketMissing(err)) {
		return g.bucket.noBucket()
	}
	return err
}

// Raise advances the mark without writing content. It takes two requests, or
// one if the mark is already there.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return fence.Mark{}, err
	}
	raise := func(m fence.Mark) (fence.Mark, error) { return m.Raise(stamp) }
	for {
		_, mark, err := g.settle(ctx, raise, func(ctx context.Context, s state, mark fence.Mark, nonce string) error {
			if mark == s.mark {
				return nil
			}
			return g.writeMark(ctx, s, mark, nonce, nil)
		})
		if !errors.Is(err, errSuperseded) { // after that, raising again does no harm
			return mark, err
		}
	}
}

// Rekey moves the object to another key. Its metadata keeps the actor, the time
// and the note until the next Rekey.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark whose token was made up. The metadata keeps the
// actor, as for Rekey.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move moves the mark as law says, and keeps the actor and the note.
func (g *Guard) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (fence.Mark, error) {
	_, mark, err := g.settle(ctx, law, func(ctx context.Context, s state, mark fence.Mark, nonce string) error {
		done := &guard.Rekeyed{From: s.mark.Key, Actor: actor, Note: note}
		if earliest, _, known := g.bucket.clock.Span(); known {
			done.At = tenure.Time(earliest)
		}
		return g.writeMark(ctx, s, mark, nonce, done)
	})
	return mark, err
}

// writeMark changes only the mark of an object. If there is no object, it makes
// one without content.
func (g *Guard) writeMark(ctx context.Context, s state, mark fence.Mark, nonce string, rekeyed *guard.Rekeyed) error {
	meta, err := s.metadata(mark, nonce, rekeyed)
	if err != nil {
		return err
	}
	if s.attrs == nil {
		meta[metaEmpty] = "raised before there was any content"
		return g.commit(ctx, nonce, rightCreate, func(ctx context.Context) error { return g.upload(ctx, s, meta, nil) })
	}
	return g.commit(ctx, nonce, rightUpdate, func(ctx context.Context) error {
		_, err := g.bucket.patch(ctx, g.object, meta, s.conditions())
		return err
	})
}
