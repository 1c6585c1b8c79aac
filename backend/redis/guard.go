package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

//go:embed guard.lua
var guardSource string

var guardScript = sync.OnceValue(func() *script { return newScript(guardSource) })

// GuardOptions are the choices in opening a guard. Nil means all defaults.
type GuardOptions struct {
	// Mark is the Redis key of the mark. The default is made from the guarded
	// key and lives on the same node of a cluster. Several keys can share one
	// guard and so one mark: they are then owned together.
	Mark string
	// MaxContent limits what Write reads, in bytes; default 64 MiB. Redis
	// itself takes 512 MiB.
	MaxContent int64
	// Keys, if set, are the public keys of those who issue stamps. The guard
	// then admits only stamps that one of them has signed. Default: all stamps.
	Keys *signed.Keys
}

const defaultMaxContent = 64 << 20

// Guard guards data in Redis. One script checks the stamp, advances the mark
// and carries out the writer's commands, in one step on the server.
//
// The mark is a hash in the same database. It does not expire, and must not be
// evicted: without it, the next writer is taken for the first. Writes that do
// not go through the guard are not checked.
//
// All methods are safe for concurrent use, also by several processes. After an
// error that matches [store.ErrUnknown] the call may or may not have taken
// effect. With a numbered stamp (Seq) it is safe to write again: the guard
// refuses a write that has been made as repeated.
type Guard struct {
	client goredis.UniversalClient
	owned  bool
	target string
	key    string
	mark   string
	most   int64
	keys   *signed.Keys
	lua    *script

	closing sync.Once
	failed  error
}

var _ guard.Artifact = (*Guard)(nil)

// OpenGuard opens the guard of a key. The caller keeps and closes the client.
// OpenGuard sends nothing. o may be nil.
func OpenGuard(client goredis.UniversalClient, key string, o *GuardOptions) (*Guard, error) {
	if o == nil {
		o = &GuardOptions{}
	}
	if key == "" {
		return nil, fmt.Errorf("%w target: the key is empty; name what is to be guarded", fence.ErrInvalid)
	}
	if err := unfit(client); err != nil {
		return nil, fmt.Errorf("%w client: %w", fence.ErrInvalid, err)
	}
	g := &Guard{
		client: client, key: key, mark: o.Mark, most: o.MaxContent, keys: o.Keys,
		lua: guardScript(), target: targetOf(client, key),
	}
	if g.mark == "" {
		g.mark = markOf(key)
	}
	if g.mark == key {
		return nil, fmt.Errorf("%w target: %q cannot be the mark of itself; choose another key for the mark",
			fence.ErrInvalid, key)
	}
	if g.most <= 0 {
		g.most = defaultMaxContent
	}
	return g, nil
}

// markOf names the mark of a key so that both have the same hash tag. This
// fails for keys with braces that form no tag: a cluster may keep the two on
// different nodes, and then refuses the script.
func markOf(key string) string {
	if strings.ContainsAny(key, "{}") {
		return "croft:mark:" + key
	}
	return "croft:fence:{" + key + "}"
}

// targetOf returns the URL by which others open the same guard. If the client
// does not say which server it uses, the URL names none, and nobody can open
// it.
func targetOf(client goredis.UniversalClient, key string) string {
	u := &url.URL{Scheme: "redis", Fragment: key}
	switch c := client.(type) {
	case *goredis.Client:
		o := c.Options()
		u.Host, u.Path = o.Addr, "/"+strconv.Itoa(o.DB)
		if o.TLSConfig != nil {
			u.Scheme = "rediss"
		}
	case *goredis.ClusterClient:
		o := c.Options()
		if len(o.Addrs) > 0 {
			u.Host = o.Addrs[0]
		}
		u.RawQuery = "cluster=true"
		if o.TLSConfig != nil {
			u.Scheme = "rediss"
		}
	}
	return u.String()
}

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		guard.Register(scheme, openGuardURL)
	}
}

// openGuardURL opens the guard of redis://host:port/db#key.
func openGuardURL(_ context.Context, u *url.URL) (guard.Guard, error) {
	bad := func(format string, args ...any) (guard.Guard, error) {
		return nil, fmt.Errorf("%w target %q: %s",
			fence.ErrInvalid, store.Redact(u.String()), fmt.Sprintf(format, args...))
	}
	if u.Fragment == "" {
		return bad("it names no key; write %s://HOST:PORT/DB#KEY", u.Scheme)
	}
	// Without a host it would be the server beside each user, and a fence there
	// would keep nobody out.
	if u.Hostname() == "" {
		return bad("it names no server; write %s://HOST:PORT/DB#KEY", u.Scheme)
	}
	rest, query, err := splitQuery(u)
	if err != nil {
		return bad("%v", err)
	}
	for _, name := range own {
		if name != "cluster" && query.Has(name) {
			return bad("%s is an option of a store, a guarded key has none", name)
		}
	}
	client, err := connect(rest, query.Get("cluster") == "true")
	if err != nil {
		return bad("%v", err)
	}
	g, err := OpenGuard(client, u.Fragment, nil)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	shown := *u
	if shown.User != nil {
		shown.User = url.User(u.User.Username())
	}
	if shown.User != nil && shown.User.Username() == "" {
		shown.User = nil
	}
	g.owned, g.target = true, shown.String()
	return g, nil
}

// Target returns a URL by which others open the same guard. It has no password:
// they must add it.
func (g *Guard) Target() string { return g.target }

// Close closes the client if the guard was opened from a URL.
func (g *Guard) Close() error {
	g.closing.Do(func() {
		if g.owned {
			g.failed = g.client.Close()
		}
	})
	return g.failed
}

// Mark reads the mark.
func (g *Guard) Mark(ctx context.Context) (fence.Mark, error) {
	values, err := g.fields(ctx, "key", "token", "grant", "seq")
	if err != nil || strings.Join(values, "") == "" {
		return fence.Mark{}, err
	}
	return g.parse(values)
}

// Rekeyed returns the last Rekey or Reset. It returns zero if there was none.
func (g *Guard) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	values, err := g.fields(ctx, "rekeyed_from", "rekeyed_by", "rekeyed_note", "rekeyed_at")
	if err != nil || values[3] == "" {
		return guard.Rekeyed{}, err
	}
	at, _ := strconv.ParseInt(values[3], 10, 64)
	return guard.Rekeyed{From: values[0], Actor: values[1], Note: values[2], At: time.Unix(at, 0).UTC()}, nil
}

func (g *Guard) fields(ctx context.Context, names ...string) ([]string, error) {
	if ctx.Err() != nil {
		return nil, store.Unknown(wait.Ended(ctx))
	}
	values, err := wait.For(ctx, func() ([]any, error) {
		if long, err := g.tooLong(ctx, names); long || err != nil {
			return nil, err
		}
		return g.client.HMGet(ctx, g.mark, names...).Result()
	})
	if err != nil {
		return nil, g.explain(err)
	}
	if values == nil {
		return nil, g.damaged("holds more than a mark does")
	}
	texts := make([]string, len(names))
	for i, v := range values {
		texts[i], _ = v.(string)
	}
	return texts, nil
}

// tooLong reports whether a field is longer than any guard writes. Another
// program may have written to the mark, and its fields could fill the memory.
func (g *Guard) tooLong(ctx context.Context, names []string) (bool, error) {
	pipe := g.client.Pipeline()
	lengths := make([]*goredis.Cmd, len(names))
	for i, name := range names {
		lengths[i] = pipe.Do(ctx, "hstrlen", g.mark, name)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	for _, length := range lengths {
		if n, err := length.Int(); n > tenure.MaxText || err != nil {
			return true, err
		}
	}
	return false, nil
}

// ErrMarkDamaged is matched by errors about a mark that no guard has written.
// It admits nothing.
var ErrMarkDamaged = errors.New("the mark is damaged")

func (g *Guard) damaged(how string) error {
	return fmt.Errorf("%w: %s %s; once no old writer lives, delete it "+
		"and raise the fence with the present owner's stamp", ErrMarkDamaged, g.mark, how)
}

// explain turns an error of Redis into one of the guard. Only the first command
// on the mark can meet a key of another type, so nothing was done in that case.
func (g *Guard) explain(err error) error {
	if begins(err, "WRONGTYPE") {
		return g.damaged("is no hash")
	}
	return store.Unknown(explain(err))
}

func (g *Guard) parse(texts []string) (fence.Mark, error) {
	token, err := strconv.ParseInt(texts[1], 10, 64)
	seq, seqErr := strconv.ParseUint(texts[3], 10, 64)
	mark := fence.Mark{Key: texts[0], Token: fence.Token(token), Grant: fence.Grant(texts[2]), Seq: seq}
	// The script compares numbers as texts, so they must have no leading zeros
	// or signs.
	same := texts[1] == strconv.FormatInt(token, 10) && texts[3] == strconv.FormatUint(seq, 10)
	if err != nil || seqErr != nil || !same || !mark.IsZero() && mark.Check() != nil {
		return fence.Mark{}, g.damaged(fmt.Sprintf("holds %.80q", texts))
	}
	return mark, nil
}
