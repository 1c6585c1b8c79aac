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
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// ErrClosed is matched by the errors of a store that is closed.
var ErrClosed = errors.New("the store is closed; open it again")

// Options of a store. The zero value is good.
type Options struct {
	// Prefix begins the names of all Redis keys of the store; default
	// [DefaultPrefix]. Stores with different prefixes share nothing.
	Prefix string
	// Retention is how long a record outlives its last use; default
	// [store.DefaultRetention]. Use the same in all clients of one store.
	Retention time.Duration
	// WaitReplicas is how many replicas must confirm a change before the store
	// answers; default 0. If they do not confirm in time, the outcome is
	// unknown. It costs a round trip between the servers. It does not make a
	// failover safe: it makes a loss rarer.
	WaitReplicas int
	// WaitTimeout is how long the store waits for these replicas; default 1 s.
	// Keep it below the client's read timeout.
	WaitTimeout time.Duration
}

// Store keeps leases in Redis. Its methods are safe for concurrent use.
type Store struct {
	client    goredis.UniversalClient
	owned     bool // the store has opened the client, and closes it
	names     naming
	retention time.Duration
	wait      int
	waitFor   time.Duration
	bounded   bool        // a call of the client ends within seconds even if the server hangs
	slow      atomic.Bool // the server was not prompt the last time

	id          string // identifies this store among the waiters of a key
	flags       byte   // for apply.lua
	apply, read *script
	clock       func() time.Time // replaces the server's clock in tests; nil otherwise

	hub      *turns.Hub
	listener *listener
	unfit    error // why a store cannot use this client; nil if it can
	closed   atomic.Bool
	closing  sync.Once
	failed   error
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
	_ store.Examiner  = (*Store)(nil)
)

// New makes a store on the caller's client. Close leaves the client open. o may
// be nil.
//
// Set ContextTimeoutEnabled on the client. Without it, a call to a hanging
// server may notice the end of its context only after the client's read
// timeout. A store on a Ring answers nothing, because a Ring may move a key to
// another server.
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
		s.flags += rewrite // WAIT covers only writes of its own connection
	}
	if _, ok := client.(*goredis.Client); !ok {
		s.flags += clustered
	}
	s.unfit = unfit(client)
	s.slow.Store(true) // until it has answered promptly
	s.listener = newListener(s)
	s.hub = turns.NewHub(s.listener)
	s.hub.Closed = ErrClosed
	return s
}

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		store.Register(scheme, openURL)
	}
}

// openURL opens a store with a client of its own.
func openURL(_ context.Context, u *url.URL) (store.Store, error) {
	bad := func(format string, args ...any) (store.Store, error) {
		return nil, fmt.Errorf("%w store URL %q: %s",
			fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
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

// own lists the parameters of a URL that go-redis does not know.
var own = []string{"prefix", "retention", "wait", "cluster"}

// splitQuery takes this package's parameters out of a URL.
func splitQuery(u *url.URL) (rest *url.URL, mine url.Values, err error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("what follows the question mark cannot be read")
	}
	if query.Has("skip_verify") { // go-redis would trust any server
		return nil, nil, errors.New("skip_verify is refused: " +
			"with it, any server that answers would get the password; remove it, " +
			"and add the server's CA to those of this machine, or name its file in SSL_CERT_FILE")
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

// readTimeout is how long a client that is opened from a URL waits for a reply,
// unless the URL has read_timeout.
const readTimeout = 2 * time.Second

// connect makes a client. It sends nothing: a server that is down when the
// program starts may be up when it is needed.
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
	o.DialerRetries = 1 // go-redis already retries commands
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// unread says why go-redis cannot read a URL. Its error quotes the path or the
// query. An "@" in them is mostly the end of a password that is not encoded,
// and must not be shown.
func unread(u *url.URL, err error) string {
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "%40") { // splitQuery has encoded the query
		return "its path or query cannot be read; encode the password"
	}
	return trimName(err)
}

// Close ends all watches, and closes the client if the store was opened from a
// URL. It releases no lease.
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
var errRing = errors.New("redis: a Ring gives a key to another server as soon as its own is slow to answer, " +
	"and that one knows nothing of it; use a client of one server, of Sentinel or of a cluster")

// unfit returns why leases and marks cannot be kept with a client, or nil.
func unfit(client goredis.UniversalClient) error {
	if _, ok := client.(*goredis.Ring); ok {
		return errRing
	}
	return nil
}

// usable returns an error if the client is unfit, ctx has ended or the store is
// closed. The error matches [store.ErrUnknown].
func (s *Store) usable(ctx context.Context) error {
	if s.unfit != nil {
		return store.Unknown(s.unfit)
	}
	if ctx.Err() != nil {
		return store.Unknown(wait.Ended(ctx))
	}
	if s.closed.Load() {
		return store.Unknown(ErrClosed)
	}
	return nil
}
