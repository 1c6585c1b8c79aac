package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKillEndsTheWholeProcessGroup(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`sh -c '%s%s' & sh -c '%s%s' | sh -c '%s%s' & %s wait`,
		y.sign("background"), forever, y.sign("writer"), forever, y.sign("reader"), forever, y.sign("main")))
	family := []proc{y.signed("background"), y.signed("writer"), y.signed("reader"), y.signed("main")}
	kill(t, c)
	for _, p := range family {
		if living(p) {
			t.Errorf("pid %d is alive after Kill", p.pid)
		}
	}
	status, err := c.Wait()
	if err != nil || status.Signal != syscall.SIGKILL || status.ExitCode() != 137 {
		t.Errorf("Wait after Kill = %v, %v", status, err)
	}
}

func TestKillReachesDescendantsThatLeftTheGroup(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`%s sh -c '%s%s'; setsid sh -c '%s%s & %s%s' & %s%s`,
		as("daemon"), y.sign("daemon"), forever,
		y.sign("session"), forever, y.sign("session2"), forever,
		y.sign("main"), forever))
	daemon, session := y.signed("daemon"), y.signed("session")
	main := y.signed("main")
	y.await("the orphan to come to the warden", func() bool { p, _ := readProc(daemon.pid); return p.parent == main.parent })
	if alive := fmt.Sprint(c.Alive()); !strings.Contains(alive, fmt.Sprint(daemon.pid)) || !strings.Contains(alive, fmt.Sprint(session.pid)) {
		t.Errorf("Alive() = %s lacks the daemon %d or the session %d", alive, daemon.pid, session.pid)
	}
	kill(t, c)
	for _, p := range []proc{daemon, session, main} {
		if living(p) {
			t.Errorf("pid %d is alive after Kill", p.pid)
		}
	}
}

func TestKillOutrunsATreeThatKeepsForking(t *testing.T) {
	y := newNoteDir(t)
	// Each process starts its successor, every other one in a new session, and
	// ends. So no process is found twice, but only a handful live at a time, to
	// spare the machine. The births are counted. They end by themselves if the
	// test fails.
	script := fmt.Sprintf(`
		cat >%[1]s <<-'END'
		echo x >>%[2]s
		[ $(wc -c <%[2]s) -gt 4000 ] && exit
		if [ $1 = a ]; then sh %[1]s b & else setsid sh %[1]s a & fi
		END
		for i in 1 2 3; do sh %[1]s a & done
		i=0; while [ $i -lt 50 ]; do sleep 1000 & sleep 0.01; i=$((i+1)); done; wait`, y.path("comet"), y.path("births"))
	c := start(t, script)
	y.await("a few generations", func() bool { return y.size("births") > 60 })
	kill(t, c)
	before := y.size("births")
	f, err := readFamily()
	if err != nil {
		t.Fatal(err)
	}
	for _, children := range f {
		for _, p := range children {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			if p.alive() && strings.Contains(string(line), y.dir) {
				t.Errorf("pid %d (%q) escaped", p.pid, line)
			}
		}
	}
	if after := y.size("births"); after != before {
		t.Errorf("births after Kill: %d", after-before)
	}
}

func TestKillLetsNobodyActOnTheDeathOfANeighbour(t *testing.T) {
	for range 10 {
		y := newNoteDir(t)
		// The shell goes on when its child dies. The reader takes the end of a
		// pipe for the end of the data.
		c := start(t, fmt.Sprintf(`(sh -c '%s exec sleep 1000'; echo stale >%s) & (sh -c '%s exec sleep 1000' | (cat; echo stale >%s)) & wait; echo stale >%s`,
			y.sign("child"), y.path("next-line"), y.sign("writer"), y.path("committed"), y.path("waited")))
		y.signed("child")
		y.signed("writer")
		kill(t, c)
		for _, note := range []string{"next-line", "committed", "waited"} {
			if y.has(note) {
				t.Fatalf("somebody lived long enough to write %q", note)
			}
		}
	}
}

func TestProcessesLeftBehindAreAliveUntilKill(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`sh -c '%s%s' & %s sh -c '%s%s'; exit 3`,
		y.sign("background"), forever, as("daemon"), y.sign("daemon"), forever))
	background, daemon := y.signed("background"), y.signed("daemon")
	if status, err := c.Wait(); err != nil || status.ExitCode() != 3 {
		t.Fatalf("Wait = %v, %v", status, err)
	}
	if !living(background) || !living(daemon) {
		t.Fatal("leftovers died before Kill")
	}
	if len(c.Alive()) < 2 {
		t.Errorf("Alive() = %v", c.Alive())
	}
	if err := c.Signal(syscall.SIGTERM); !errors.Is(err, ErrOver) {
		t.Errorf("Signal after the end = %v", err)
	}
	kill(t, c)
	if living(background) || living(daemon) {
		t.Error("leftovers are alive after Kill")
	}
	if status, err := c.Wait(); err != nil || status.ExitCode() != 3 {
		t.Errorf("Kill changed the status to %v, %v", status, err)
	}
	kill(t, c) // a second Kill does nothing
}

func TestKillEndsTheStoppedAndTheDeaf(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`trap "" TERM INT HUP; sh -c '%s kill -STOP $$; %s' & %s%s`, y.sign("stopped"), forever, y.sign("main"), forever))
	stopped := y.signed("stopped")
	y.await("the stop", func() bool { p, _ := readProc(stopped.pid); return p.stopped() })
	main := y.signed("main")
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kill(t, c)
	if living(stopped) || living(main) {
		t.Error("alive after Kill")
	}
}

func TestAProcessWhoseFirstThreadEndedIsNotTakenForDead(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, as("leaderless")+y.path("leaderless")+" & wait")
	p := y.signed("leaderless")
	if p.state != 'Z' || !p.alive() {
		t.Fatalf("the test's own process is not as it should be: %+v", p)
	}
	if err := c.Freeze(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c.Thaw()
	kill(t, c)
	if living(p) {
		t.Error("alive after Kill")
	}
}

func TestTerminateReachesAllAndWaitsForNobody(t *testing.T) {
	y := newNoteDir(t)
	const polite = `exec 2>/dev/null; trap "echo bye >%s; exit 0" TERM; %s while :; do sleep 0.02; done`
	c := start(t, fmt.Sprintf("setsid sh -c '"+polite+"' & "+polite,
		y.path("bye-session"), y.sign("session"), y.path("bye-main"), y.sign("main")))
	y.signed("session")
	y.signed("main")
	// Frozen processes cannot answer; Terminate continues them.
	if err := c.Freeze(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
	if status, err := c.Wait(); err != nil || status.ExitCode() != 0 {
		t.Errorf("Wait = %v, %v", status, err)
	}
	y.await("both to say goodbye", func() bool { return y.has("bye-session") && y.has("bye-main") })
}

func TestTheDeadAreReaped(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`i=0; while [ $i -lt 20 ]; do setsid sh -c 'sleep 0.01 & exit' & i=$((i+1)); done; wait; %s%s`, y.sign("main"), forever))
	warden := wardenOf(t, y.signed("main"))
	y.await("no zombies under the warden", func() bool {
		f, err := readFamily()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f[warden.pid] {
			if !p.alive() {
				return false
			}
		}
		return true
	})
	kill(t, c)
	if p, ok := readProc(warden.pid); ok && p.start == warden.start {
		t.Errorf("the warden is still there: %c", p.state)
	}
}

func TestKillGivesUpWithItsContextAndCanBeCalledAgain(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, y.sign("main")+forever)
	main := y.signed("main")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := c.Kill(over)
	var left *SurvivorsError
	if err != nil && (!errors.As(err, &left) || !errors.Is(err, context.Canceled)) {
		t.Errorf("Kill with a context that is over = %v", err)
	}
	kill(t, c)
	if living(main) {
		t.Error("alive after Kill")
	}
}

func TestAllowForKillsWhenTheTimeIsUp(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`setsid sh -c '%s%s' & %s%s`, y.sign("session"), forever, y.sign("main"), forever))
	session := y.signed("session")
	y.signed("main")
	if err := c.AllowFor(time.Hour); err != nil {
		t.Fatal(err)
	}
	if !living(session) {
		t.Error("killed with an hour to go")
	}
	if err := c.AllowFor(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if status, err := c.Wait(); err != nil || status.Signal != syscall.SIGKILL {
		t.Errorf("Wait = %v, %v", status, err)
	}
	awaitDeath(t, "session", session)
}

// TestACommandIsNeverWithoutItsLimit: a caller that is stopped right after
// Start could not set one.
func TestACommandIsNeverWithoutItsLimit(t *testing.T) {
	for _, limit := range []time.Duration{100 * time.Millisecond, time.Nanosecond} { // the second ends before the command runs
		c := startArgs(t, &Options{AllowFor: limit}, "sleep", "1000")
		if status, err := c.Wait(); err != nil || status.Signal != syscall.SIGKILL || !status.Overdue {
			t.Errorf("allowed for %s: %+v, %v", limit, status, err)
		}
	}
	c := startArgs(t, &Options{AllowFor: time.Hour}, "true")
	if status, err := c.Wait(); err != nil || status != (Status{}) {
		t.Errorf("allowed for an hour: %+v, %v", status, err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Start(over, []string{"true"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("started when it was over before: %v", err)
	}
}
