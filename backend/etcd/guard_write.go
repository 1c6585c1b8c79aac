package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
)

// Do checks the stamp and carries out operations in one transaction, all of
// them or none. It returns etcd's responses to them. To add conditions, wrap
// operations with clientv3.OpTxn. A refusal is an error of package fence and
// has changed nothing.
func (g *Guard) Do(ctx context.Context, stamp fence.Stamp, ops ...clientv3.Op) ([]*etcdserverpb.ResponseOp, error) {
	_, responses, err := g.change(ctx, g.law.admit, stamp, ops)
	return responses, err
}

// Write replaces the value with the content of r.
func (g *Guard) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	content, err := readAll(ctx, r, g.maxContent)
	if err != nil {
		return guard.Receipt{}, err
	}
	there := clientv3.OpGet(g.key, clientv3.WithCountOnly()) // read before the write
	m, responses, err := g.change(ctx, g.law.admit, stamp, []clientv3.Op{there, clientv3.OpPut(g.key, string(content))})
	if err != nil {
		return guard.Receipt{}, err
	}
	adopted := m.mod == 0 && responses[0].GetResponseRange().Count > 0
	return guard.Receipt{Mark: m.Mark, Bytes: int64(len(content)), Adopted: adopted}, nil
}

// readAll reads content until ctx ends. It leaves a reader behind that hangs.
func readAll(ctx context.Context, r io.Reader, most int64) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, wait.Ended(ctx)
	}
	content, err := wait.For(ctx, func() ([]byte, error) {
		var b bytes.Buffer
		_, err := b.ReadFrom(io.LimitReader(r, most+1))
		return b.Bytes(), err
	})
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%w content: it is longer than %d bytes; raise GuardOptions.MaxContent "+
			"and etcd's --max-request-bytes, or keep it in a file or an object store", fence.ErrInvalid, most)
	}
	return content, err
}

// Raise advances the mark without writing.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	m, _, err := g.change(ctx, g.law.raise, stamp, nil)
	if m == nil {
		return fence.Mark{}, err
	}
	return m.Mark, err
}

// Rekey moves the data to another key. The mark keeps who did so, when and why,
// until the next Rekey or Reset.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Rekey(key) })
}

// Reset takes back a mark that was made up. The mark keeps who did so, as with
// Rekey.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	return g.move(ctx, actor, note, func(m fence.Mark) (fence.Mark, error) { return m.Reset(floor, time.Now()) })
}

// move changes the mark by a law, and keeps who did so and why.
func (g *Guard) move(
	ctx context.Context, actor, note string, law func(fence.Mark) (fence.Mark, error),
) (fence.Mark, error) {
	m, _, err := g.attempt(ctx, func(m *marked) (markRecord, bool, error) {
		next, err := law(m.Mark)
		rekeyed := &guard.Rekeyed{
			From: m.Mark.Key, Actor: actor, Note: note, At: time.Now().UTC().Truncate(time.Second),
		}
		return markRecord{next, rekeyed}, err == nil, err
	}, nil)
	if err != nil {
		return fence.Mark{}, err
	}
	return m.Mark, nil
}

// change carries out ops if rule admits the stamp, and advances the mark.
func (g *Guard) change(
	ctx context.Context, rule func(fence.Mark, fence.Stamp) (fence.Mark, error), stamp fence.Stamp, ops []clientv3.Op,
) (*marked, []*etcdserverpb.ResponseOp, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return nil, nil, err
	}
	return g.attempt(ctx, func(m *marked) (markRecord, bool, error) {
		next, err := rule(m.Mark, stamp)
		return markRecord{next, m.Rekeyed}, err == nil && next != m.Mark, err
	}, ops)
}

// attempt decides on the newest known mark. The transaction has the condition
// that this mark is unchanged. If it has changed, the answer brings the new
// mark, and attempt decides again. A refusal counts only if the mark was read
// for this call. attempt returns the new mark, with the revision of the one
// before it.
func (g *Guard) attempt(
	ctx context.Context, decide func(*marked) (next markRecord, advances bool, err error), ops []clientv3.Op,
) (*marked, []*etcdserverpb.ResponseOp, error) {
	m, fresh := g.known(), false
	for round := 0; ; round++ {
		if err := pause(ctx, round); err != nil {
			return nil, nil, err
		}
		if m == nil {
			var err error
			if m, err = g.read(ctx); err != nil {
				return nil, nil, err
			}
			fresh = true
		}
		next, advances, refusal := decide(m)
		if refusal != nil && fresh {
			return m, nil, refusal
		}
		if refusal != nil {
			m = nil
			continue
		}
		then := ops[:len(ops):len(ops)]
		if advances {
			text, err := json.Marshal(next)
			if err != nil {
				return nil, nil, err
			}
			then = append(then, clientv3.OpPut(g.mark, string(text)))
		}
		compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(g.mark), "=", m.mod)}
		if !g.law.compare {
			compares = nil
		}
		resp, err := g.txn(ctx, compares, then, []clientv3.Op{clientv3.OpGet(g.mark)})
		if err != nil {
			return nil, nil, err
		}
		if resp.Succeeded {
			after := &marked{mod: m.mod, markRecord: next}
			if advances {
				g.remember(&marked{mod: resp.Header.Revision, markRecord: next})
			}
			return after, resp.Responses[:len(ops)], nil
		}
		if m, err = g.parse(resp.Responses[0].GetResponseRange().Kvs); err != nil {
			return nil, nil, err
		}
		fresh = true
	}
}
