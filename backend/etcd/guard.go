package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// GuardOptions are the choices in opening a guard. Nil means all defaults.
type GuardOptions struct {
	// Mark is the etcd key of the mark; default is the guarded key and
	// ".fence". Several keys can share one mark. They are then owned together.
	Mark string
	// MaxContent bounds how many bytes Write reads; default 1 MiB. etcd takes
	// 1.5 MiB in one request by default.
	MaxContent int64
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

const defaultMaxContent = 1 << 20

// Guard checks writes to data in etcd where they are made. One transaction
// compares the mark, advances it and carries out the writer's operations.
//
// The mark is an etcd key of its own and must not be deleted. Without it, the
// next writer is taken for the first. Writes that do not go through the guard
// are not checked.
//
// All methods are safe for concurrent use, also from several processes. An
// error that matches [store.ErrUnknown] leaves open whether the call took
// effect. With a numbered stamp (Seq) it is safe to write again. If the first
// write took effect, the second is refused as repeated.
type Guard struct {
	client     *clientv3.Client
	owned      bool
	target     string
	key        string
	mark       string
	maxContent int64
	keys       *signed.Keys
	law        law
	timeout    time.Duration // of one call; longer only in tests

	mu   sync.Mutex
	seen *marked // the newest known mark, or nil

	closing  sync.Once
	closeErr error
}

// law is the rule that admits or refuses stamps. Tests may replace it.
type law struct {
	admit, raise func(fence.Mark, fence.Stamp) (fence.Mark, error)
	compare      bool
}

var theLaw = law{admit: fence.Mark.Admit, raise: fence.Mark.Raise, compare: true}

// marked is the mark at one revision.
type marked struct {
	mod int64 // mod_revision; 0 if there is no mark
	markRecord
}

// markRecord is the value of the mark's etcd key.
type markRecord struct {
	Mark    fence.Mark     `json:"mark"`
	Rekeyed *guard.Rekeyed `json:"rekeyed,omitempty"`
}

var _ guard.Artifact = (*Guard)(nil)

// OpenGuard opens the guard of a key. The client stays the caller's. Nothing is
// sent before the first call. o may be nil.
func OpenGuard(client *clientv3.Client, key string, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	if key == "" {
		return nil, fmt.Errorf("%w target: the key is empty; name what is to be guarded", fence.ErrInvalid)
	}
	g := &Guard{
		client: client, key: key, mark: o.Mark, maxContent: o.MaxContent, keys: o.Keys,
		law: theLaw, timeout: 2 * requestTimeout,
	}
	if g.mark == "" {
		g.mark = key + ".fence"
	}
	if g.mark == key {
		return nil, fmt.Errorf("%w target: %q cannot be the mark of itself; choose another key for the mark",
			fence.ErrInvalid, key)
	}
	if g.maxContent <= 0 {
		g.maxContent = defaultMaxContent
	}
	g.target = targetOf(client, key)
	return g, nil
}

// targetOf returns a URL that opens the same guard.
func targetOf(client *clientv3.Client, key string) string {
	scheme, hosts := "etcd", []string{}
	for _, e := range client.Endpoints() {
		if rest, ok := strings.CutPrefix(e, "https://"); ok {
			scheme, e = "etcds", rest
		}
		hosts = append(hosts, strings.TrimPrefix(e, "http://"))
	}
	return (&url.URL{Scheme: scheme, Host: strings.Join(hosts, ","), Path: "/", Fragment: key}).String()
}

// Target returns a URL that opens the same guard. It has no password.
func (g *Guard) Target() string { return g.target }

// Close closes the client if the guard was opened from a URL.
func (g *Guard) Close() error {
	g.closing.Do(func() {
		if g.owned {
			g.closeErr = g.client.Close()
		}
	})
	return g.closeErr
}

// Mark reads the mark.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	m, err := g.read(ctx)
	if err != nil {
		return fence.Mark{}, err
	}
	return m.Mark, nil
}

// Rekeyed tells of the last Rekey or Reset. It is zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	m, err := g.read(ctx)
	if err != nil || m.Rekeyed == nil {
		return guard.Rekeyed{}, err
	}
	return *m.Rekeyed, nil
}

func (g *Guard) read(ctx context.Context) (*marked, error) {
	resp, err := g.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(g.mark)}, nil)
	if err != nil {
		return nil, err
	}
	return g.parse(resp.Responses[0].GetResponseRange().Kvs)
}

// txn makes one transaction.
func (g *Guard) txn(
	ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	if ctx.Err() != nil {
		return nil, store.Unknown(wait.Ended(ctx))
	}
	known := g.known()
	resp, err := commit(ctx, g.client, g.timeout, compares, then, otherwise)
	if err != nil {
		return nil, store.Unknown(err)
	}
	if known != nil && resp.Header.Revision < known.mod {
		// etcd was restored from a backup that does not have this mark.
		g.remember(nil)
	}
	return resp, nil
}

// ErrMarkDamaged is matched by errors about a mark that the guard has not
// written. Then it admits nothing.
var ErrMarkDamaged = errors.New("the mark is damaged")

// parse unpacks the mark and remembers it.
func (g *Guard) parse(kvs []*mvccpb.KeyValue) (*marked, error) {
	m := &marked{}
	if len(kvs) > 0 {
		m.mod = kvs[0].ModRevision
		if err := json.Unmarshal(kvs[0].Value, &m.markRecord); err != nil || m.Mark.IsZero() || m.Mark.Check() != nil {
			return nil, fmt.Errorf("%w: %s holds %.80q; once no old writer lives, "+
				"delete it and raise the fence with the present owner's stamp",
				ErrMarkDamaged, g.mark, kvs[0].Value)
		}
	}
	g.remember(m)
	return m, nil
}

func (g *Guard) remember(m *marked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = m
}

func (g *Guard) known() *marked {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}
