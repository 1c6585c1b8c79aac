package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestSignalsToCroftReachTheCommandsGroup(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "ALRM": syscall.SIGALRM, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	} {
		t.Run(name, func(t *testing.T) {
			y := newNoteDir(t)
			// Not in the background: there a shell ignores SIGINT and SIGQUIT.
			c := newCaller(t, fmt.Sprintf(`trap "echo x >>%[1]s" %[5]s; %[2]s sh -c 'trap "echo x >>%[3]s; exit" %[5]s; %[4]s while :; do sleep 0.02; done' | cat; exit 5`,
				y.path("main-heard"), y.sign("main"), y.path("child-heard"), y.sign("child"), name))
			c.start()
			y.signed("child")
			y.signed("main")
			c.signal(sig)
			if code := c.exit(); code != 5 {
				t.Errorf("exit %d: %s", code, c.said())
			}
			if y.size("child-heard") != 2 || y.size("main-heard") != 2 {
				t.Errorf("heard %d and %d times", y.size("child-heard")/2, y.size("main-heard")/2)
			}
		})
	}
}

func TestACommandThatDiesOfAPassedOnSignalGivesItsCode(t *testing.T) {
	y := newNoteDir(t)
	c := newCaller(t, y.sign("main")+forever).start()
	y.signed("main")
	c.signal(syscall.SIGTERM)
	if code := c.exit(); code != 143 {
		t.Errorf("exit %d: %s", code, c.said())
	}
}

func TestSignalsToACallerWithACommandAsideAreItsOwn(t *testing.T) {
	y := newNoteDir(t)
	c := newCaller(t, fmt.Sprintf(`trap "echo x >>%s" TERM; %s while [ ! -e %s ]; do sleep 0.02; done; exit 5`, y.path("heard"), y.sign("main"), y.path("go")), "ASIDE=1")
	c.start()
	y.signed("main")
	c.signal(syscall.SIGTERM) // it ends a caller that does not catch it
	if code := c.exit(); code == 5 {
		t.Errorf("exit %d: the caller did not get its signal", code)
	}
	if y.size("heard") > 0 {
		t.Error("the command got it, too")
	}
}

// ordinary are the signals below the C library's own. A process started by
// posix_spawn, as make does, ignores signal 32 from birth.
const ordinary = 1<<31 - 1

func TestSignalsThatNohupIgnoresStayIgnored(t *testing.T) {
	y := newNoteDir(t)
	script := fmt.Sprintf("grep SigIgn /proc/self/status; %s read x; exit 0", y.sign("main"))
	c := newCaller(t, script)
	inner := c.Cmd
	outer := exec.Command("/bin/sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", inner.Path}, inner.Args[1:]...)...)
	outer.Env, outer.Stdout, outer.Stderr, outer.SysProcAttr = inner.Env, inner.Stdout, inner.Stderr, inner.SysProcAttr
	stdin, err := outer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Cmd = outer
	c.start()
	main := y.signed("main")
	c.signal(syscall.SIGHUP)
	signalProc(t, main, syscall.SIGHUP)
	_, _ = stdin.Write([]byte("\n"))
	if code := c.exit(); code != 0 {
		t.Errorf("exit %d: %s", code, c.said())
	}
	var mask uint64
	if _, err := fmt.Sscanf(strings.TrimSpace(c.said()), "SigIgn: %x", &mask); err != nil || mask&ordinary != 1 {
		t.Errorf("the command ignores %q; want SIGHUP and nothing else (%v)", c.said(), err)
	}
}

// ignoredBy returns the signals that a process ignores: bit 0 is signal 1.
func ignoredBy(t *testing.T, pid int) (mask uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, field, _ := strings.Cut(string(text), "SigIgn:")
	if _, err := fmt.Sscanf(field, "%x", &mask); err != nil {
		t.Fatal(err)
	}
	return mask & ordinary
}

// TestAStopIgnoredAtStartStaysIgnored: also after the command has stopped
// itself, and croft with it.
func TestAStopIgnoredAtStartStaysIgnored(t *testing.T) {
	const stop = 1 << (syscall.SIGTSTP - 1)
	y := newNoteDir(t)
	d := inShell(t, true, fmt.Sprintf(`trap "" TSTP; $CROFT sh -c '%s exec env %s'; echo "stopped $?"; fg >/dev/null; echo "ended $?"`, y.sign("main"), as("stopper")))
	main := y.signed("main")
	croft := wardenOf(t, main).parent
	// The command may run again before croft ignores the signal again.
	check := func(when string) {
		t.Helper()
		await(t, when+", both ignore SIGTSTP", func() bool { return ignoredBy(t, croft)&ignoredBy(t, main.pid)&stop != 0 })
	}
	check("at first")
	d.press("\n")
	d.see("stopped 148")
	d.see("back")
	check("after the stop")
	d.press("\n")
	d.exit()
	d.once("ended 6")
}

// stopper is a program that handles Ctrl-Z itself: it stops by SIGTSTP, even if
// that was ignored when it started.
func stopper() int {
	_, _ = fmt.Scanln()
	stopSelf(syscall.SIGTSTP)
	fmt.Println("back")
	_, _ = fmt.Scanln()
	return 6
}

func TestTheCommandIgnoresAndBlocksNothing(t *testing.T) {
	c := newCaller(t, "grep -E 'Sig(Ign|Blk)' /proc/self/status")
	if code := c.start().exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(c.said()), "\n") {
		var mask uint64
		if _, err := fmt.Sscanf(line[len("SigIgn:"):], "%x", &mask); err != nil || mask&ordinary != 0 {
			t.Errorf("%s (%v)", line, err)
		}
	}
}
