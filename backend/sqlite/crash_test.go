//go:build unix

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

const crashKeys = 3

// busy takes leases, writes under them through a guard, renews and releases,
// until its process is killed.
func busy(t *testing.T, file string) {
	patient := 30 * time.Second // there are eight on a busy machine
	st := open(t, file, &Options{LockWait: patient})
	db, err := connections(file, patient)
	if err != nil {
		t.Fatal(err)
	}
	guards := make([]*Guard, crashKeys)
	for k := range guards {
		guards[k] = guardIn(t, db, FenceRow{Name: fmt.Sprintf("artifact/%d", k)}, &GuardOptions{LockWait: patient})
	}
	testenv.Say("ready")
	for {
		k := rand.IntN(crashKeys)
		mine := acquire(fmt.Sprintf("busy/%d", k), fmt.Sprint(os.Getpid()))
		mine.TTL = 20 * time.Millisecond
		a := one(st, mine)
		if a.Err != nil {
			if !errors.Is(a.Err, tenure.ErrHeld) {
				testenv.Say("error", a.Err)
			}
			continue
		}
		testenv.Say("won", k, a.Record.Token, a.Record.Grant)
		write := func() {
			err := inside(context.Background(), db, func(tx *sql.Tx) error {
				if err := guards[k].Admit(context.Background(), tx, a.Record.Stamp()); err != nil {
					return err
				}
				if _, err := tx.Exec("UPDATE artifact SET token = ?2 WHERE id = ?1", k, int64(a.Record.Token)); err != nil {
					return err
				}
				_, err := tx.Exec("INSERT INTO admitted (artifact, token) VALUES (?1, ?2)", k, int64(a.Record.Token))
				return err
			})
			if err != nil && !errors.Is(err, fence.ErrStale) {
				testenv.Say("error", err)
			}
		}
		write()
		_ = one(st, then(tenure.Renew, mine))
		write()
		if rand.IntN(2) == 0 {
			_ = one(st, then(tenure.Release, mine))
		}
		if rand.IntN(20) == 0 {
			_, _ = st.Sweep(context.Background())
		}
	}
}

// TestNoLawIsBrokenWhenWritersAreKilled runs eight processes that acquire,
// write, renew, release and sweep, and kills them again and again at random
// moments. The file stays whole. No token is granted twice. No two terms of a
// key overlap. No admitted write is older than one before it. The keys can be
// taken afterwards.
func TestNoLawIsBrokenWhenWritersAreKilled(t *testing.T) {
	t.Parallel()
	rounds := many(6, 3, 2)
	file := t.TempDir() + "/croft.db"
	open(t, file, nil).Close()
	execute(t, file, "CREATE TABLE artifact (id INTEGER PRIMARY KEY, token INTEGER); CREATE TABLE admitted (seq INTEGER PRIMARY KEY AUTOINCREMENT, artifact INTEGER, token INTEGER); INSERT INTO artifact (id) VALUES (0), (1), (2)")
	type grant struct{ key, token string }
	grants := map[grant]string{}
	newest := map[string]fence.Token{}
	for range rounds {
		children := make([]*testenv.Child, 8)
		for i := range children {
			children[i] = startChild(t, "busy", file)
		}
		for _, c := range children {
			c.Expect(t, "ready")
		}
		for _, c := range children {
			time.Sleep(rand.N(40 * time.Millisecond)) // anywhere in its work
			if err := c.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for text := c.Hear(); text != ""; text = c.Hear() {
				words := strings.Fields(text)
				if words[0] != "won" || len(words) != 4 || len(words[3]) != 32 {
					if words[0] == "won" {
						continue // it was killed in the middle of this line
					}
					t.Fatalf("a child says %s", text)
				}
				g := grant{words[1], words[2]}
				if before, ok := grants[g]; ok && before != words[3] {
					t.Fatalf("token %s of %s was granted twice", g.token, g.key)
				}
				grants[g] = words[3]
				var token fence.Token
				if _, err := fmt.Sscan(words[2], &token); err != nil {
					t.Fatal(err)
				}
				newest[g.key] = max(newest[g.key], token)
			}
		}
		inOrder(t, file)
	}
	if len(grants) == 0 {
		t.Fatal("nobody was granted anything: the test shows nothing")
	}
	st := open(t, file, nil)
	defer st.Close()
	for k := range crashKeys {
		next := acquire(fmt.Sprintf("busy/%d", k), "after")
		a := one(st, next)
		for errors.Is(a.Err, tenure.ErrHeld) { // by a killed process, for its TTL
			time.Sleep(time.Millisecond)
			a = one(st, next)
		}
		if a.Err != nil || a.Record.Token <= newest[fmt.Sprint(k)] {
			t.Errorf("key %d: token %d after %d, %v", k, a.Record.Token, newest[fmt.Sprint(k)], a.Err)
		}
		rec, err := st.Get(t.Context(), next.Key)
		if err != nil {
			t.Fatal(err)
		}
		for i, term := range rec.History[:len(rec.History)-1] {
			if after := rec.History[i+1]; after.Acquired.Before(term.Finished) || after.Token <= term.Token {
				t.Errorf("key %d: token %d from %s, before %d ended at %s", k, after.Token, after.Acquired, term.Token, term.Finished)
			}
			if told, ok := grants[grant{fmt.Sprint(k), fmt.Sprint(term.Token)}]; ok && told != string(term.Grant) {
				t.Errorf("key %d: token %d was told to %s and is remembered as %s", k, term.Token, told, term.Grant)
			}
		}
		admittedInOrder(t, file, k)
	}
	t.Logf("%d rounds of 8 processes, all killed; %d grants", rounds, len(grants))
}

// admittedInOrder checks law 3 by the table in which the database has kept
// every admitted write.
func admittedInOrder(t *testing.T, file string, k int) {
	t.Helper()
	var late, last, mark, content int64
	query(t, file, fmt.Sprintf(`SELECT (SELECT count(*) FROM admitted a JOIN admitted b ON a.artifact = b.artifact AND b.seq > a.seq AND b.token < a.token WHERE a.artifact = %[1]d),
		coalesce((SELECT token FROM admitted WHERE artifact = %[1]d ORDER BY seq DESC LIMIT 1), 0),
		coalesce((SELECT fence_token FROM croft_fence WHERE name = 'artifact/%[1]d'), 0), coalesce((SELECT token FROM artifact WHERE id = %[1]d), 0)`, k), &late, &last, &mark, &content)
	if late != 0 || mark != last || content != last {
		t.Errorf("artifact %d: %d writes came after newer ones; the last is of %d, the content of %d, the mark %d", k, late, last, content, mark)
	}
}
