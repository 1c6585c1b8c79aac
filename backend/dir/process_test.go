package dir

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// childEnv makes the test program a child of a test. Its value is
// "task:directory".
const childEnv = "CROFT_TEST_DIR_CHILD"

// TestStoreChild is the child's part of the tests below. By itself it does
// nothing.
func TestStoreChild(t *testing.T) {
	what, root, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		return
	}
	st, err := Open(root, nil)
	if err != nil {
		testenv.Say("error", err)
		return
	}
	defer st.Close()
	testenv.Say("ready")
	in := bufio.NewScanner(os.Stdin)
	switch what {
	case "race": // "go": try once to acquire the key; "end": release it
		var mine tenure.Request
		for in.Scan() {
			if in.Text() == "end" {
				testenv.Say("released", one(st, then(tenure.Release, mine)).Err)
				continue
			}
			mine = acquire("race", fmt.Sprint(os.Getpid()))
			mine.TTL = time.Hour
			switch a := one(st, mine); {
			case a.Err == nil:
				testenv.Say("won", a.Record.Token)
			case errors.Is(a.Err, tenure.ErrHeld):
				testenv.Say("held")
			default:
				testenv.Say("error", a.Err)
			}
		}
	case "busy": // acquire and release until killed
		for {
			req := acquire(fmt.Sprintf("busy/%d", rand.IntN(3)), fmt.Sprint(os.Getpid()))
			req.TTL = 20 * time.Millisecond
			a := one(st, req)
			if a.Err != nil {
				if !errors.Is(a.Err, tenure.ErrHeld) {
					testenv.Say("error", a.Err)
				}
				continue
			}
			testenv.Say("won", req.Key, a.Record.Token, req.Secret.Grant())
			_ = one(st, then(tenure.Renew, req))
			if rand.IntN(2) == 0 {
				_ = one(st, then(tenure.Release, req))
			}
			if rand.IntN(10) == 0 {
				_, _ = st.Sweep(t.Context())
			}
		}
	case "term":
		req := acquire("shared", fmt.Sprint(os.Getuid()))
		a := one(st, req)
		if a.Err == nil {
			a = one(st, then(tenure.Renew, req))
		}
		if a.Err == nil {
			a = one(st, then(tenure.Release, req))
		}
		_, err := st.Sweep(t.Context())
		testenv.Say("done", errors.Join(a.Err, err))
	}
}

// startChild starts a process that runs TestStoreChild.
func startChild(tb testing.TB, program, what, root string, prepare func(*exec.Cmd)) *testenv.Child {
	tb.Helper()
	cmd := exec.Command(program, "-test.run=^TestStoreChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+root)
	if prepare != nil {
		prepare(cmd)
	}
	c := testenv.StartChild(tb, cmd)
	c.Expect(tb, "ready")
	return c
}

// hear returns the words of the child's next line, or none if it has ended.
func hear(c *testenv.Child) []string { return strings.Fields(c.Hear()) }

func self(tb testing.TB) string {
	tb.Helper()
	path, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// TestOfManyProcessesOneWins: many processes race for one key, round after
// round. Every round has one winner, and every winner a higher token.
func TestOfManyProcessesOneWins(t *testing.T) {
	t.Parallel()
	processes, rounds := many(40, 16, 10), many(50, 20, 10)
	root := filepath.Join(t.TempDir(), "store")
	children := make([]*testenv.Child, processes)
	for i := range children {
		children[i] = startChild(t, self(t), "race", root, nil)
	}
	last := fence.Token(0)
	for round := range rounds {
		for _, c := range children {
			fmt.Fprintln(c.In, "go")
		}
		var winner *testenv.Child
		for _, c := range children {
			switch words := hear(c); {
			case len(words) == 1 && words[0] == "held":
			case len(words) == 2 && words[0] == "won":
				var token fence.Token
				if _, err := fmt.Sscan(words[1], &token); err != nil {
					t.Fatal(err)
				}
				if winner != nil || token <= last {
					t.Fatalf("round %d: token %d after %d; another has won: %t", round, token, last, winner != nil)
				}
				winner, last = c, token
			default:
				t.Fatalf("round %d: a child says %v", round, words)
			}
		}
		if winner == nil {
			t.Fatalf("round %d: nobody won", round)
		}
		fmt.Fprintln(winner.In, "end")
		if words := hear(winner); len(words) != 2 || words[1] != "<nil>" {
			t.Fatalf("round %d: the winner says %v", round, words)
		}
	}
	st := open(t, root, nil)
	defer st.Close()
	if rec, err := st.Get(t.Context(), "race"); err != nil || rec.Terms != int64(rounds) || rec.Token != last {
		t.Errorf("after %d rounds: %d terms, token %d, %v; the last winner had %d", rounds, rec.Terms, rec.Token, err, last)
	}
	t.Logf("%d rounds of %d processes", rounds, processes)
}

// TestKilledProcessesLeaveAStoreThatWorks: processes are killed at random
// moments. No token is granted twice, and the keys go on.
func TestKilledProcessesLeaveAStoreThatWorks(t *testing.T) {
	t.Parallel()
	kills := many(40, 20, 10)
	root := filepath.Join(t.TempDir(), "store")
	type grant struct{ key, token string }
	grants := map[grant]string{}
	newest := map[string]fence.Token{}
	for range kills / 2 {
		pair := []*testenv.Child{startChild(t, self(t), "busy", root, nil), startChild(t, self(t), "busy", root, nil)}
		for _, c := range pair {
			time.Sleep(rand.N(20 * time.Millisecond)) // a random moment of its work
			if err := c.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for words := hear(c); len(words) > 0; words = hear(c) {
				if words[0] != "won" || len(words) != 4 {
					t.Fatalf("a child says %v", words)
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
	}
	if len(grants) == 0 {
		t.Fatal("nobody was granted anything: the test shows nothing")
	}
	st := open(t, root, nil)
	defer st.Close()
	for key, last := range newest {
		req := acquire(key, "after")
		a := one(st, req)
		for errors.Is(a.Err, tenure.ErrHeld) { // a killed process holds it until its TTL ends
			time.Sleep(time.Millisecond)
			a = one(st, req)
		}
		if a.Err != nil || a.Record.Token <= last {
			t.Errorf("%s: token %d after %d, %v", key, a.Record.Token, last, a.Err)
		}
	}
	t.Logf("%d grants between %d kills", len(grants), kills)
}
