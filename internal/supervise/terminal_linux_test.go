package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// ttySession is a session on a pseudoterminal. The test types on its keyboard
// and reads its screen.
type ttySession struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	done   chan struct{} // the session's first process has ended

	mu     sync.Mutex
	screen strings.Builder
}

// startSession starts a command as the leader of a session on a terminal of its
// own.
func startSession(t *testing.T, env []string, args ...string) *ttySession {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &ttySession{t: t, master: os.NewFile(uintptr(fd), "ptmx"), done: make(chan struct{})}
	t.Cleanup(func() { _ = d.master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = slave, slave, slave
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := d.master.Read(buf)
			d.mu.Lock()
			d.screen.Write(buf[:n])
			d.mu.Unlock()
			if err != nil { // EIO when no process has the other side open any more
				break
			}
		}
		_ = d.cmd.Wait()
		close(d.done)
	}()
	return d
}

// alone starts croft as the only job of a terminal session. Croft runs a
// script.
func alone(t *testing.T, script string) *ttySession {
	t.Helper()
	return startSession(t, []string{roleVar + "=croft"}, self(), "/bin/sh", "-c", script)
}

// inShell starts a shell, with or without job control, that runs a script. The
// script calls croft as $CROFT.
func inShell(t *testing.T, jobs bool, script string) *ttySession {
	t.Helper()
	args := []string{"/bin/sh", "-c", script}
	if jobs {
		args = []string{"/bin/sh", "-m", "-c", script}
	}
	return startSession(t, []string{"CROFT=env " + roleVar + "=croft " + self()}, args...)
}

func (d *ttySession) seen() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.ReplaceAll(d.screen.String(), "\r", "")
}

// see waits until text is on the screen.
func (d *ttySession) see(text string) {
	d.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(d.seen(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("never saw %q, only %q", text, d.seen())
		}
	}
}

func (d *ttySession) press(keys string) {
	d.t.Helper()
	if _, err := d.master.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

func (d *ttySession) exit() int {
	d.t.Helper()
	select {
	case <-d.done:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		d.t.Fatalf("the session does not end; the screen shows %q", d.seen())
		return 0
	}
}

// once checks that text is on the screen exactly once.
func (d *ttySession) once(text string) {
	d.t.Helper()
	if n := strings.Count(d.seen(), text); n != 1 {
		d.t.Errorf("saw %q %d times in %q", text, n, d.seen())
	}
}

const (
	ctrlC         = "\x03"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

func TestACommandCanTalkToTheTerminal(t *testing.T) {
	d := alone(t, `test -t 0 && test -t 1 && echo ready; read word; echo "got <$word>"; exit 4`)
	d.see("ready")
	d.press("hello\n")
	if code := d.exit(); code != 4 {
		t.Errorf("exit %d", code)
	}
	d.once("got <hello>")
}

func TestTheCommandStartsInTheForeground(t *testing.T) {
	// Fields 5 and 8 of stat are its group and the terminal's foreground group.
	d := alone(t, `set -- $(cat /proc/$$/stat); [ $5 = $8 ] && echo foreground; exit 0`)
	d.exit()
	d.once("foreground")
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	d := alone(t, `trap 'echo "<INT>"' INT; trap 'echo "<QUIT>"' QUIT; echo ready; read a || read a; echo "<$a>"; read b || read b; echo "<$b>"; exit 4`)
	d.see("ready")
	d.press(ctrlC)
	d.see("<INT>")
	d.press("one\n")
	d.see("<one>") // the next key would discard unread input
	d.press(ctrlBackslash)
	d.see("<QUIT>")
	d.press("two\n")
	if code := d.exit(); code != 4 {
		t.Errorf("exit %d, %q", code, d.seen())
	}
	d.once("<INT>")
	d.once("<QUIT>")
}

func TestCtrlCKillsAPlainCommand(t *testing.T) {
	d := alone(t, "echo ready; exec sleep 1000")
	d.see("ready")
	d.press(ctrlC)
	if code := d.exit(); code != 130 {
		t.Errorf("exit %d", code)
	}
}

func TestCtrlCReachesTheCommandOnceInAScript(t *testing.T) {
	// croft is not the leader of its group. The terminal signals croft, and
	// croft passes it on.
	d := inShell(t, false, `trap 'echo "<script>"' INT; $CROFT sh -c 'trap "echo \"<INT>\"; exit 3" INT; echo ready; while :; do sleep 0.02; done'; echo "code $?"`)
	d.see("ready")
	d.press(ctrlC)
	d.exit()
	d.once("<INT>")
	d.once("<script>")
	d.once("code 3")
}

func TestACommandInAScriptGetsTheTerminalWhenItAsks(t *testing.T) {
	d := inShell(t, false, `$CROFT sh -c 'echo ready; read word; echo "got <$word>"'; read word; echo "then <$word>"`)
	d.see("ready")
	d.press("hello\n")
	d.see("got <hello>")
	d.press("world\n") // the script has the terminal back
	d.exit()
	d.once("then <world>")
}

func TestTheRestOfAPipelineKeepsTheTerminal(t *testing.T) {
	d := inShell(t, true, `$CROFT sh -c 'echo from croft; sleep 0.1' | sh -c 'read a; read b </dev/tty; echo "<$a> <$b>"'`)
	d.press("from the keyboard\n")
	d.exit()
	d.once("<from croft> <from the keyboard>")
}

func TestCtrlZStopsTheWholeJobAndFgContinuesIt(t *testing.T) {
	d := inShell(t, true, `$CROFT sh -c 'echo ready; read word; echo "got <$word>"; exit 6'; echo "stopped $?"; read word; echo "shell <$word>"; fg >/dev/null; echo "ended $?"`)
	d.see("ready")
	d.press(ctrlZ)
	d.see("stopped 148") // 128 + SIGTSTP: the shell saw its job stop, not end
	d.press("mine\n")
	d.see("shell <mine>")
	d.press("hello\n")
	d.see("ended")
	d.exit()
	d.once("got <hello>")
	d.once("ended 6")
}

func TestABackgroundJobThatReadsIsStoppedUntilFg(t *testing.T) {
	y := newNoteDir(t)
	d := inShell(t, true, fmt.Sprintf(`$CROFT sh -c '%s read word; echo "got <$word>"; exit 6' & read go; fg >/dev/null; echo "ended $?"`, y.sign("main")))
	main := y.signed("main")
	croft := wardenOf(t, main).parent
	y.await("croft to be stopped, too", func() bool { p, _ := readProc(croft); return p.stopped() })
	if p, _ := readProc(main.pid); !p.stopped() {
		t.Errorf("the command is %c", p.state)
	}
	d.press("go\nhello\n")
	d.exit()
	d.once("got <hello>")
	d.once("ended 6")
}

func TestCtrlZDoesNotHangASessionWithoutAShell(t *testing.T) {
	d := alone(t, `echo ready; read word || read word; echo "got <$word>"`)
	d.see("ready")
	d.press(ctrlZ)
	d.see("^Z")
	d.press("hello\n")
	if code := d.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
	d.once("got <hello>")
}

func TestAKilledCommandLeavesTheTerminalAsItWas(t *testing.T) {
	for _, jobs := range []bool{true, false} {
		d := inShell(t, jobs, `$CROFT sh -c 'stty raw -echo; kill -9 $$'; echo "code $?"; stty -a | tr ";" "\n" | grep -w icanon; read word; echo "got <$word>"`)
		d.see("code 137")
		d.press("hello\n")
		d.exit()
		d.once("got <hello>")
		if strings.Contains(d.seen(), "-icanon") {
			t.Errorf("the terminal is still raw: %q", d.seen())
		}
	}
}

func TestACommandThatFailsToStartLeavesTheTerminalAsItWas(t *testing.T) {
	y := newNoteDir(t)
	testenv.WriteProgram(t, y.path("lost"), []byte("#!/no/such/interpreter\n"), 0o755)
	d := inShell(t, true, fmt.Sprintf(`$CROFT %s 2>/dev/null; echo "code $?"; read word; echo "got <$word>"`, y.path("lost")))
	d.see("code 126")
	d.press("hello\n")
	d.exit()
	d.once("got <hello>")

	// Croft itself also keeps the terminal.
	d = startSession(t, []string{roleVar + "=croft"}, self(), y.path("lost"))
	d.see("interpreter")
	if code := d.exit(); code != 126 {
		t.Errorf("exit %d", code)
	}
}

func TestHangingUpReachesTheCommand(t *testing.T) {
	y := newNoteDir(t)
	d := alone(t, fmt.Sprintf(`trap 'echo x >%s; exit' HUP; %s while :; do sleep 0.02; done`, y.path("heard"), y.sign("main")))
	main := y.signed("main")
	_ = d.master.Close()
	y.await("the hang-up", func() bool { return y.has("heard") })
	awaitDeath(t, "main", main)
}
