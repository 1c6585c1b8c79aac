package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// The neighbour of these tests may write to some of the store's keys, as a user
// whom the ACL of a shared server allows too much. It can take leases that way.
// It must not be able to do more.

// TestALineTooLongStopsNoServer: a script that walks through all of it would hold
// up everybody, and could not be killed once it has written.
func TestALineTooLongStopsNoServer(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	neighbour := dial(t, server)
	st := New(dialWith(t, server, &goredis.Options{ReadTimeout: testenv.Patience}), nil)
	t.Cleanup(func() { st.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience/2)
	defer cancel()
	mine := claim("line/long", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	name := st.names.record(mine.Key)
	record := []byte(neighbour.HGet(ctx, name, "r").Val())
	record[waitedAt] = 1
	line := strings.Repeat("neighbor\x00\x00\x00\x00\x00\x00\x00\x00", 1<<19) // 8 MiB of stores that asked long ago
	grants := strings.Repeat("gg", 1<<20)
	if err := neighbour.HSet(ctx, name, "r", record, "w", line, "g", grants).Err(); err != nil {
		t.Fatal(err)
	}
	if a := one(ctx, st, then(tenure.Release, mine)); a.Err != nil {
		t.Errorf("a release: %v", a.Err)
	}
	if a := one(ctx, st, claim(mine.Key, "bob")); a.Err != nil {
		t.Errorf("the next claim: %v", a.Err)
	}
	if n := neighbour.HStrLen(ctx, name, "g").Val(); n > 62 {
		t.Errorf("%d bytes of grants were written again", n)
	}
}

// TestAPlantedTermForgesNoAnswer: the answers of a batch lie one behind the
// other. A term whose length does not fit into its place would be read as the
// answer about another key.
func TestAPlantedTermForgesNoAnswer(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	mine, theirs := claim("forged/mine", "ann"), claim("forged/theirs", "zoe")
	hand := tenure.Request{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "op", Note: "test"}
	for _, a := range st.Apply(ctx, []tenure.Request{mine, hand, theirs}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	held := st.names.record(theirs.Key)
	forged := "d" + neighbour.HGet(ctx, held, "r").Val() + neighbour.HGet(ctx, held, "x").Val()
	term := forged + strings.Repeat("x", 1<<16-len(forged)) // a length of 0, in two bytes
	if err := neighbour.HSet(ctx, st.names.record(mine.Key), "Z", term).Err(); err != nil {
		t.Fatal(err)
	}
	answers := st.Apply(ctx, []tenure.Request{then(tenure.Renew, mine), claim(theirs.Key, "ann")})
	if !errors.Is(answers[0].Err, tenure.ErrNotOwned) || !errors.Is(answers[1].Err, tenure.ErrHeld) {
		t.Errorf("the one that was revoked: %v; the one that zoe holds: %v", answers[0].Err, answers[1].Err)
	}
}

// TestPlantedRecordsAreBoundedAndHideNothing: neither in what is read of them nor
// in a listing.
func TestPlantedRecordsAreBoundedAndHideNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	good := claim("planted/good", "ann")
	if a := one(ctx, st, good); a.Err != nil {
		t.Fatal(a.Err)
	}
	record, words := neighbour.HGet(ctx, st.names.record(good.Key), "r").Val(), neighbour.HGet(ctx, st.names.record(good.Key), "x").Val()
	large := strings.Repeat("x", 8<<20)
	for name, fields := range map[string][]any{
		"planted/a large record": {"r", record + large, "x", words},
		"planted/large texts":    {"r", record, "x", words + large},
		"planted/a large term":   {"r", record, "x", words, "A", large},
	} {
		if err := neighbour.HSet(ctx, st.names.record(name), fields...).Err(); err != nil {
			t.Fatal(err)
		}
		neighbour.ZAdd(ctx, st.names.index("planted"), goredis.Z{Member: name})
		text, err := neighbour.Eval(ctx, st.read.source, []string{st.names.record(name)}, "", st.retention.Microseconds(), "1").StringSlice()
		if err != nil || len(text) != 1 || len(text[0]) > 1<<20 {
			t.Errorf("%s: %d texts, %v; want one that is short", name, len(text), err)
		}
		if _, err := st.Get(ctx, name); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want damaged", name, err)
		}
	}
	// Names that no store lists in this index: of another namespace, and of no key at all.
	for _, member := range []string{"other/secret", "planted/../x", "planted/\x1b[2Jx"} {
		neighbour.ZAdd(ctx, st.names.index("planted"), goredis.Z{Member: member})
		neighbour.HSet(ctx, st.names.record(member), "r", record, "x", words)
	}
	var keys []string
	var failed error
	for rec, err := range st.List(ctx, "") {
		if failed = err; err == nil {
			keys = append(keys, rec.Key)
		}
	}
	// Without its history a record is sound whose terms are not.
	if strings.Join(keys, " ") != "planted/a large term planted/good" || !errors.Is(failed, ErrDamaged) || !errors.Is(failed, store.ErrUnknown) {
		t.Errorf("listed %q, then %.200v", keys, failed)
	}
}

// TestAPlantedMarkIsBoundedAndAdmitsNothing.
func TestAPlantedMarkIsBoundedAndAdmitsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	large := strings.Repeat("x", 8<<20)
	for name, fields := range map[string][]any{
		"a large key":         {"key", large},
		"a large grant":       {"grant", large},
		"a token of all ones": {"token", strings.Repeat("9", 30)},
		"a token in hex":      {"token", "0x1"},
		"no number":           {"token", "nan"},
		"an endless token":    {"token", "-inf"},
		"a negative token":    {"token", "-5"},
		"a key that is none":  {"key", "a//b"},
		"a number of zeros":   {"token", "9007199254740991", "seq", "00"},
		"a token after zeros": {"token", "0000000000000001"},
	} {
		key := server.Prefix() + "planted " + name
		g, err := OpenGuard(neighbour, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(ctx, stamp(10, 1, 0), strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
		if err := neighbour.HSet(ctx, g.mark, fields...).Err(); err != nil {
			t.Fatal(err)
		}
		_, writeErr := g.Write(ctx, stamp(20, 2, 0), strings.NewReader("never"))
		_, raiseErr := g.Raise(ctx, stamp(20, 2, 0))
		_, markErr := g.Mark(ctx)
		bounded, cancel := context.WithTimeout(ctx, testenv.Patience)
		_, resetErr := g.Reset(bounded, 15, "ann", "it was planted")
		cancel()
		for act, err := range map[string]error{"write": writeErr, "raise": raiseErr, "look": markErr, "reset": resetErr} {
			refused := errors.Is(err, ErrMarkDamaged) || act != "look" && act != "reset" && name == "a key that is none" && errors.Is(err, fence.ErrWrongKey)
			if !refused || len(err.Error()) > 4096 {
				t.Errorf("%s: a %s: %.200v, want damaged", name, act, err)
			}
		}
		if got := neighbour.Get(ctx, key).Val(); got != "content" {
			t.Errorf("%s: the content is now %q", name, got)
		}
	}
}

// restless moves a mark whenever somebody has read it.
type restless struct {
	mark      string
	neighbour *goredis.Client
}

func (r restless) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (r restless) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (r restless) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hmget" {
			err = errors.Join(err, r.neighbour.HIncrBy(ctx, r.mark, "seq", 1).Err())
		}
		return err
	}
}

// TestAResetEndsWhileANeighbourMovesTheMark.
func TestAResetEndsWhileANeighbourMovesTheMark(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, client, ctx := dial(t, server), dial(t, server), t.Context()
	g, err := OpenGuard(client, server.Prefix()+"restless", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := neighbour.HSet(ctx, g.mark, "key", "jobs/daily", "token", int64(fence.MaxToken), "grant", "", "seq", 0).Err(); err != nil {
		t.Fatal(err)
	}
	client.AddHook(restless{g.mark, neighbour})
	if _, err := g.Reset(ctx, 15, "ann", "it was planted"); !errors.Is(err, guard.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	if token := neighbour.HGet(ctx, g.mark, "token").Val(); token != "9007199254740991" {
		t.Errorf("the token is now %s", token)
	}
}

// rights are the commands that the message to a user without them names.
func rights(t *testing.T) []string {
	t.Helper()
	_, list, _ := strings.Cut(noRight, "the commands ")
	list, _, found := strings.Cut(list, ", on keys")
	if !found {
		t.Fatalf("%q names no commands", noRight)
	}
	return strings.Split(strings.Replace(list, " and ", ", ", 1), ", ")
}

// TestTheRightsThatAreNamedAreEnough, for all that a store does, and are few: the
// user reaches no key of others.
func TestTheRightsThatAreNamedAreEnough(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	user := []string{"ACL", "SETUSER", "croft", "on", ">secret", "resetkeys", "~croft:*", "resetchannels", "&croft:*", "-@all"}
	for _, command := range rights(t) {
		user = append(user, "+"+command)
	}
	if _, err := server.Ask(user...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	client := dialWith(t, server, &goredis.Options{Username: "croft", Password: "secret"})
	st := New(client, nil)
	t.Cleanup(func() { st.Close() })
	mine := claim("rights/key", "ann")
	must := func(req tenure.Request) {
		t.Helper()
		if a := one(ctx, st, req); a.Err != nil {
			t.Errorf("%s: %v", req.Verb, a.Err)
		}
	}
	must(mine)
	must(then(tenure.Renew, mine))
	report := then(tenure.Report, mine)
	report.Progress = "half"
	must(report)
	woken, err := st.Watch(ctx, mine.Key)
	if err != nil {
		t.Fatalf("watching: %v", err)
	}
	if a := one(ctx, st, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) { // and stands in line
		t.Errorf("a second claim: %v", a.Err)
	}
	must(then(tenure.Release, mine))
	select {
	case <-woken:
	case <-ctx.Done():
		t.Error("nobody was woken")
	}
	must(tenure.Request{Verb: tenure.Takeover, Key: mine.Key, Secret: tenure.NewSecret(), Owner: "op", TTL: time.Minute, Actor: "op", Note: "test"})
	if rec, err := st.Get(ctx, mine.Key); err != nil || len(rec.History) != 2 {
		t.Errorf("Get: %d terms, %v", len(rec.History), err)
	}
	for _, prefix := range []string{"", "rights/"} {
		n := 0
		for _, err := range st.List(ctx, prefix) {
			if n++; err != nil {
				t.Errorf("a listing of %q: %v", prefix, err)
			}
		}
		if n != 1 {
			t.Errorf("a listing of %q yields %d", prefix, n)
		}
	}
	if _, err := st.Now(ctx); err != nil {
		t.Errorf("the time: %v", err)
	}
	var many []tenure.Request // enough for the index to be tidied
	for n := range 40 {
		many = append(many, claim(fmt.Sprint("rights/", n), "ann"))
	}
	for _, a := range st.Apply(ctx, many) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for _, args := range [][]any{{"get", "other"}, {"set", "other", "x"}, {"hset", "other", "f", "x"}, {"flushall"}, {"keys", "*"}, {"config", "get", "*"}} {
		if err := client.Do(ctx, args...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v: %v, want no permission", args, err)
		}
	}
}

// TestAServerMustShowItsCertificate, and no URL says otherwise.
func TestAServerMustShowItsCertificate(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"rediss://localhost:1/0?skip_verify=true", "rediss://localhost:1/0?skip_verify=true&cluster=true"} {
		if _, err := store.Open(t.Context(), raw); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
	}
}
