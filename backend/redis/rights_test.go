package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// rights returns the commands that the advice for a user without permissions
// names between two phrases, as permissions of an ACL.
func rights(t *testing.T, after, before string) []string {
	t.Helper()
	_, list, found := strings.Cut(noRight, after)
	list, _, ended := strings.Cut(list, before)
	if !found || !ended {
		t.Fatalf("%q names no commands between %q and %q", noRight, after, before)
	}
	var all []string
	for _, command := range strings.Split(strings.Replace(list, " and ", ", ", 1), ", ") {
		all = append(all, "+"+command)
	}
	return all
}

func rightsOfStore(t *testing.T) []string {
	return rights(t, "this user needs the commands ", ", on keys")
}

// advised returns a client of a user that has the store's keys and channels and
// no rights but these.
func advised(t *testing.T, server *testenv.RedisServer, rights ...string) *goredis.Client {
	t.Helper()
	user := []string{
		"ACL", "SETUSER", "croft", "reset", "on", ">secret", "~croft:*", "resetchannels", "&croft:*", "-@all",
	}
	if _, err := server.Ask(append(user, rights...)...); err != nil {
		t.Fatal(err)
	}
	return dialWith(t, server, &goredis.Options{Username: "croft", Password: "secret"})
}

// TestTheRightsThatAreNamedAreEnough checks that a user with these commands can
// do everything that a store does, and reaches no key of others.
func TestTheRightsThatAreNamedAreEnough(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	client := advised(t, server, rightsOfStore(t)...)
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
	if a := one(ctx, st, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) { // and stands in the queue
		t.Errorf("a second claim: %v", a.Err)
	}
	must(then(tenure.Release, mine))
	select {
	case <-woken:
	case <-ctx.Done():
		t.Error("nobody was woken")
	}
	acts, err := st.Acts(ctx)
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	must(seize(mine.Key))
	toldOf(t, acts, mine.Key)
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

// TestTheRightsThatAreNamedForReplicasAreEnough checks a store that waits for a
// replica. Without the right, the error names it.
func TestTheRightsThatAreNamedForReplicasAreEnough(t *testing.T) {
	t.Parallel()
	primary, _ := testenv.RedisPair(t)
	waiting := func(rights ...string) error {
		st := New(advised(t, primary, rights...), &Options{WaitReplicas: 1, WaitTimeout: testenv.Patience / 2})
		defer st.Close()
		return one(t.Context(), st, claim("rights/"+fmt.Sprint(len(rights)), "ann")).Err
	}
	if err := waiting(rightsOfStore(t)...); err == nil || !strings.Contains(err.Error(), noRight) {
		t.Errorf("without the right: %v, want what to do", err)
	}
	if err := waiting(append(rightsOfStore(t), rights(t, "it also needs the command ", ";")...)...); err != nil {
		t.Errorf("with the right: %v", err)
	}
}

// TestTheRightsThatAreNamedForGuardsAreEnough checks all that a guard of one
// value does.
func TestTheRightsThatAreNamedForGuardsAreEnough(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	own := append(rights(t, "for a guard it also needs the commands ", ", those of"), "~report", "+set")
	g, err := OpenGuard(advised(t, server, append(rightsOfStore(t), own...)...), "report", nil)
	if err != nil {
		t.Fatal(err)
	}
	first := stamp(20, 1, 0)
	if _, err := g.Write(ctx, first, strings.NewReader("content")); err != nil {
		t.Errorf("Write: %v", err)
	}
	if _, err := g.Raise(ctx, stamp(21, 2, 0)); err != nil {
		t.Errorf("Raise: %v", err)
	}
	if _, err := g.Write(ctx, first, strings.NewReader("old")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a write of the older owner: %v, want stale", err)
	}
	if mark, err := g.Mark(ctx); err != nil || mark.Token != 21 {
		t.Errorf("Mark: %+v, %v", mark, err)
	}
	if _, err := g.Rekey(ctx, "jobs/daily", "ann", "test"); err != nil {
		t.Errorf("Rekey: %v", err)
	}
	if _, err := g.Rekeyed(ctx); err != nil {
		t.Errorf("Rekeyed: %v", err)
	}
	if err := dial(t, server).HSet(ctx, g.mark, "token", int64(fence.MaxToken)).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Reset(ctx, 30, "ann", "test"); err != nil {
		t.Errorf("Reset: %v", err)
	}
}

// TestAMissingRightIsAFaultOnlyBeforeAWrite: a user may write records, but not
// list them. The script has written the record when it is refused, so the
// outcome is unknown. A user that may not run scripts has changed nothing.
func TestAMissingRightIsAFaultOnlyBeforeAWrite(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	for _, c := range []struct {
		missing string
		fault   bool
	}{{"-zadd", false}, {"-evalsha", true}} {
		st := New(advised(t, server, append(rightsOfStore(t), c.missing)...), nil)
		req := claim("rights/"+c.missing, "ann")
		a := one(t.Context(), st, req)
		if a.Err == nil || store.IsFault(a.Err) != c.fault {
			t.Errorf("%s: a fault: %t; %v", c.missing, store.IsFault(a.Err), a.Err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		all := New(dial(t, server), nil)
		defer all.Close()
		if rec, err := all.Get(t.Context(), req.Key); err != nil || rec.IsZero() != c.fault {
			t.Errorf("%s: the record is %+v, %v", c.missing, rec, err)
		}
	}
}
