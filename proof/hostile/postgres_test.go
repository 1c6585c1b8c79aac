//go:build linux

package hostile

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// A role that may create in schema public plants a concat_ws that fits Croft's
// call better than the server's own. It makes the role a superuser when it
// runs. A superuser then looks at a lease.
func TestAPlantedFunctionIsNotRunByASuperuser(t *testing.T) {
	t.Parallel()
	croft := built(t)
	pg := testenv.Postgres(t)
	url := pg.Database(t)
	database := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	mallory := "mallory_" + database
	superuser := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, croft, args...)
		cmd.Env = append(os.Environ(), "CROFT_STORE="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("croft %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	superuser("acquire", "jobs/a", "--ttl", "1h")
	pg.Query(t, database, "CREATE ROLE "+mallory+" LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO "+mallory)
	// SET ROLE is enough, without a login: the owner of the function counts.
	pg.Query(t, database, "SET ROLE "+mallory+`;
		CREATE FUNCTION public.concat_ws(text, bigint, text, text, text, text, text, text, text, text, bigint, bigint, bigint, bigint, bigint, text, text, text, text, text, bigint, boolean)
		RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE `+mallory+` SUPERUSER'; RETURN ''; END $$;`)
	if said := superuser("show", "jobs/a"); !strings.Contains(said, "jobs/a") {
		t.Errorf("croft show said %q", said)
	}
	superuser("ls")
	superuser("takeover", "jobs/a", "--note", "why")
	superuser("history", "jobs/a")
	if pg.Query(t, database, "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = '"+mallory+"'") != "f" {
		t.Error("the hostile role has made itself a superuser")
	}
}

// A worker's role owns the fence table that its target names. A trigger on that
// table makes the role a superuser. A superuser allows the database, and takes
// over.
func TestAFenceTableOfAnothersRunsNothingAsTheOperator(t *testing.T) {
	t.Parallel()
	croft, store := built(t), t.TempDir()
	pg := testenv.Postgres(t)
	url := pg.Database(t)
	database := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	mallory := "mallory_" + database
	superuser := func(want int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, croft, args...)
		cmd.Env = append(os.Environ(), "CROFT_STORE="+store, "CROFT_RAISE="+url)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Errorf("croft %q: %v, want exit code %d: %s", args, err, want, out)
		}
		return string(out)
	}
	superuser(0, "acquire", "jobs/a", "--ttl", "1h", "--guard", url+"#report")
	superuser(0, "takeover", "jobs/a", "--note", "its own table")
	pg.Query(t, database, "CREATE ROLE "+mallory+" LOGIN; ALTER SCHEMA croft OWNER TO "+mallory+"; ALTER TABLE croft.fence OWNER TO "+mallory)
	pg.Query(t, database, "SET ROLE "+mallory+`;
		CREATE FUNCTION croft.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE `+mallory+` SUPERUSER'; RETURN NEW; END $$;
		CREATE TRIGGER t BEFORE UPDATE ON croft.fence FOR EACH ROW EXECUTE FUNCTION croft.f()`)
	refused := func() {
		t.Helper()
		if said := superuser(1, "takeover", "jobs/a", "--note", "why"); !strings.Contains(said, "allow it as that role: --raise postgres://"+mallory+"@") {
			t.Errorf("croft takeover said %q", said)
		}
		if pg.Query(t, database, "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = '"+mallory+"'") != "f" {
			t.Error("the hostile role has made itself a superuser")
		}
	}
	refused()
	pg.Query(t, database, "ALTER SCHEMA croft OWNER TO CURRENT_USER; ALTER TABLE croft.fence OWNER TO CURRENT_USER")
	refused() // the trigger is still there
	pg.Query(t, database, "DROP TRIGGER t ON croft.fence; ALTER SCHEMA croft OWNER TO "+mallory)
	refused()
	pg.Query(t, database, "ALTER TABLE croft.fence OWNER TO "+mallory)
	refused()
	superuser(0, "takeover", "jobs/a", "--note", "as it says", "--raise", strings.Replace(url, "postgres://postgres@", "postgres://"+mallory+"@", 1))
}
