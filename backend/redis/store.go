package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store"
)

// ErrClosed is why a store that has been closed answers nothing.
var ErrClosed = errors.New("the store is closed; open it again")

// Options of a store. The zero value is good.
type Options struct {
	// Prefix is what the names of all its keys begin with; default [DefaultPrefix]. Stores with different prefixes share nothing.
	Prefix string
	// Retention is how long a record outlives its last use; default [store.DefaultRetention]. Use the same in all clients of one store.
	Retention time.Duration
	// WaitReplicas is how many replicas must have confirmed a change before it is answered; default 0. A change they have not confirmed in time is
	// answered as unknown. It costs a round trip between the servers, and does not make a failover safe: it makes a loss rarer.
	WaitReplicas int
	// WaitTimeout bounds that; default 1 s. Keep it below the client's read timeout.
	WaitTimeout time.Duration
}

// Store keeps leases in Redis. Its methods are safe for concurrent use.
type Store struct {
	client    goredis.UniversalClient
	owned     bool // opened from a URL, and closed with the store
	names     naming
	retention time.Duration
	wait      int
	waitFor   time.Duration
	bounded   bool        // a call of the client ends soon, also if the server hangs
	slow      atomic.Bool // the server was not prompt the last time

	id          string // of this store among those who wait
	flags       byte   // for apply.lua
	apply, read *script
	clock       func() time.Time // in place of the server's; nil but in tests

	hub      *turns.Hub
	listener *listener
	unfit    error // why this client cannot carry a store
	closed   atomic.Bool
	closing  sync.Once
	failed   error
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
	_ store.Pipelined = (*Store)(nil)
)

// New makes a store of a client, which stays the caller's: Close leaves it open. Give it ContextTimeoutEnabled, and the end of a context is noticed soon also while the server hangs; otherwise it may be noticed only
// after the client's read timeout. With a Ring nothing is answered: it does not keep a key where it is. o may be nil.
func New(client goredis.UniversalClient, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		client:    client,
		names:     newNaming(o.Prefix),
		retention: o.Retention,
		wait:      o.WaitReplicas,
		waitFor:   o.WaitTimeout,
		bounded:   bounded(client) && o.WaitReplicas == 0,
		id:        newID(),
		apply:     applyScript(),
		read:      readScript(),
	}
	if s.retention <= 0 {
		s.retention = store.DefaultRetention
	}
	if s.waitFor <= 0 {
		s.waitFor = time.Second
	}
	if s.wait > 0 {
		s.flags += rewrite // WAIT counts what a connection has written
	}
	if _, ok := client.(*goredis.Client); !ok {
		s.flags += clustered
	}
	s.unfit = unfit(client)
	s.slow.Store(true) // until it has shown otherwise
	s.listener = newListener(s)
	s.hub = turns.NewHub(s.listener)
	return s
}

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		store.Register(scheme, openURL)
	}
}

// openURL opens a store and a client of its own.
func openURL(_ context.Context, u *url.URL) (store.Store, error) {
	bad := func(format string, args ...any) (store.Store, error) {
		return nil, fmt.Errorf("%w store URL %q: %s", fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
	}
	if u.Fragment != "" {
		return bad("what follows # names a guarded value, a store has none")
	}
	rest, query, err := splitQuery(u)
	if err != nil {
		return bad("%v", err)
	}
	var o Options
	o.Prefix = query.Get("prefix")
	if text := query.Get("retention"); text != "" {
		if o.Retention, err = time.ParseDuration(text); err != nil || o.Retention <= 0 {
			return bad("retention %q: write a duration, such as 24h", text)
		}
	}
	if text := query.Get("wait"); text != "" {
		if o.WaitReplicas, err = strconv.Atoi(text); err != nil || o.WaitReplicas < 0 {
			return bad("wait %q: write how many replicas must confirm, such as 1", text)
		}
	}
	client, err := connect(rest, query.Get("cluster") == "true")
	if err != nil {
		return bad("%v", err)
	}
	s := New(client, &o)
	s.owned = true
	return s, nil
}

// own are the options in a URL's query that are not go-redis's.
var own = []string{"prefix", "retention", "wait", "cluster"}

// splitQuery takes this package's options out of a URL.
func splitQuery(u *url.URL) (rest *url.URL, mine url.Values, err error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("what follows the question mark cannot be read")
	}
	if query.Has("skip_verify") { // go-redis would then believe every server that it is the right one
		return nil, nil, errors.New("skip_verify is not taken: without it the password goes to whoever answers; add the server's CA to those of this machine, or name its file in SSL_CERT_FILE")
	}
	mine = url.Values{}
	for _, name := range own {
		if values, given := query[name]; given {
			mine[name] = values
			delete(query, name)
		}
	}
	cut := *u
	cut.RawQuery, cut.Fragment, cut.RawFragment = query.Encode(), "", ""
	return &cut, mine, nil
}

// readTimeout is how long a client that is opened from a URL waits for a reply, unless the URL says read_timeout.
const readTimeout = 2 * time.Second

// connect makes a client. Nothing is sent yet: a server that is down when the program starts may be up when it is needed.
func connect(u *url.URL, cluster bool) (goredis.UniversalClient, error) {
	if cluster {
		o, err := goredis.ParseClusterURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("%s; write %s://HOST:PORT?cluster=true", unread(u, err), u.Scheme)
		}
		o.ReadTimeout = cmp.Or(o.ReadTimeout, readTimeout)
		o.DialerRetries, o.ContextTimeoutEnabled = 1, true
		return goredis.NewClusterClient(o), nil
	}
	o, err := goredis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%s; write %s://USER:PASSWORD@HOST:PORT/DB", unread(u, err), u.Scheme)
	}
	o.ReadTimeout = cmp.Or(o.ReadTimeout, readTimeout)
	o.DialerRetries = 1 // commands are tried again as it is
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// unread is why go-redis cannot read a URL. It quotes the path or the query. An
// "@" in them is mostly the end of a password that is not encoded.
func unread(u *url.URL, err error) string {
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "%40") { // splitQuery has encoded the query
		return "its path or query cannot be read; encode the password"
	}
	return trimName(err)
}

// Pipelines says that a second batch is worth sending beside the first: see [store.Pipelined].
func (s *Store) Pipelines() bool { return true }

// Close ends all watches, and the client if the store was opened from a URL. It releases no lease.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.listener.close()
		if s.owned {
			s.failed = s.client.Close()
		}
	})
	return s.failed
}

// errRing is why a Ring is refused.
var errRing = errors.New("redis: a Ring gives a key to another server as soon as its own is slow to answer, and that one knows nothing of it; use a client of one server, of Sentinel or of a cluster")

// unfit is why neither leases nor marks can be kept with a client, or nil.
func unfit(client goredis.UniversalClient) error {
	if _, ok := client.(*goredis.Ring); ok {
		return errRing
	}
	return nil
}

// usable is the error of a call that need not be tried.
func (s *Store) usable(ctx context.Context) error {
	if s.unfit != nil {
		return store.Unknown(s.unfit)
	}
	if ctx.Err() != nil {
		return store.Unknown(over(ctx))
	}
	if s.closed.Load() {
		return store.Unknown(ErrClosed)
	}
	return nil
}
