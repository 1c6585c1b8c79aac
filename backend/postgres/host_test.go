package postgres_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/operator"
)

// TestATakeoverRaisesTheFenceWithoutAUserInItsTarget: the record names the
// guard without user and password. So the operator's store opens it over its
// own connection.
func TestATakeoverRaisesTheFenceWithoutAUserInItsTarget(t *testing.T) {
	t.Parallel()
	p := shared(t)
	own := schema()
	st := postgres.New(p, &postgres.Options{Schema: own})
	t.Cleanup(func() { st.Close() })
	g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "report"}, &postgres.GuardOptions{Schema: own})
	if err != nil {
		t.Fatal(err)
	}
	if u, err := url.Parse(g.Target()); err != nil || u.User != nil {
		t.Fatalf("the target is %s, %v", g.Target(), err)
	}
	operator.RaisesTheFence(t, st, g)
}

// TestAStoreOpensGuardsInItsOwnSchemaAlone: anybody may own tables in another
// schema, with triggers that run as the operator.
func TestAStoreOpensGuardsInItsOwnSchemaAlone(t *testing.T) {
	t.Parallel()
	p := shared(t)
	own := schema()
	st := postgres.New(p, &postgres.Options{Schema: own})
	defer st.Close()
	g, err := postgres.NewGuard(p, postgres.FenceRow{Name: "report"}, &postgres.GuardOptions{Schema: own})
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(u *url.URL)) string {
		u, err := url.Parse(g.Target())
		if err != nil {
			t.Fatal(err)
		}
		f(u)
		return u.String()
	}
	query := func(name, value string) func(u *url.URL) {
		return func(u *url.URL) {
			q := u.Query()
			q.Set(name, value)
			u.RawQuery = q.Encode()
		}
	}
	for name, c := range map[string]struct {
		target string
		own    bool
	}{
		"as it is":         {g.Target(), true},
		"with a user":      {change(func(u *url.URL) { u.User = url.User("ann") }), true},
		"another scheme":   {change(func(u *url.URL) { u.Scheme = "redis" }), false},
		"another database": {change(func(u *url.URL) { u.Path = "/other" }), false},
		"another host":     {change(func(u *url.URL) { u.Host, u.RawQuery = "attacker.example:5432", "schema="+own }), false},
		"another schema":   {change(query("schema", "evil")), false},
		"no row":           {change(func(u *url.URL) { u.Fragment = "" }), false},
		"a file":           {"/tmp/report", false},
	} {
		got, err := st.Guard(t.Context(), c.target)
		if c.own != (err == nil) || !c.own && !errors.Is(err, guard.ErrElsewhere) {
			t.Errorf("%s: %s: %v, own %v", name, c.target, err, c.own)
		}
		if err == nil {
			_ = got.Close()
		}
	}
}
