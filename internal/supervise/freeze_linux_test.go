package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// ticking is a shell script that appends to a note for ever.
func (y *noteDir) ticking(name string) string {
	return fmt.Sprintf("%s while :; do echo x >>%s; sleep 0.01; done", y.sign(name), y.path(name+"-ticks"))
}

// halted reports whether a process stands still. It is stopped, or it is a
// shell that waits in the kernel (D) for its vforked child, which is stopped.
func halted(p proc) bool { return p.stopped() || p.state == 'D' }

// awaitOrders waits until the warden has carried out all orders so far, such as
// an order to continue. It sends one more signal, which comes last. The command
// is stopped, so the signal stays pending, and /proc shows it.
func awaitOrders(t *testing.T, c *Child, command proc) {
	t.Helper()
	if err := c.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	await(t, "a pending signal", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", command.pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "ShdPnd:")
		var mask uint64
		_, err = fmt.Sscanf(after, "%x", &mask)
		return err == nil && mask&(1<<(syscall.SIGWINCH-1)) != 0
	})
}

func TestFreezeStopsTheWholeTreeAndThawContinuesIt(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`setsid sh -c '%s' & %s sh -c '%s'; sh -c '%s' & %s`,
		y.ticking("session"), as("daemon"), y.ticking("daemon"), y.ticking("child"), y.ticking("main")))
	names := []string{"session", "daemon", "child", "main"}
	for _, name := range names {
		y.signed(name)
	}
	for range 3 {
		if err := c.Freeze(bounded(t)); err != nil {
			t.Fatal(err)
		}
		sizes := map[string]int64{}
		for _, name := range names {
			sizes[name] = y.size(name + "-ticks")
		}
		for _, pid := range c.Alive() {
			if p, ok := readProc(pid); ok && !halted(p) {
				t.Errorf("pid %d is %c, not stopped", pid, p.state)
			}
		}
		// A running process would tick in this time. Stopped and dead ones do
		// not.
		for range 20 {
			for _, name := range names {
				if now := y.size(name + "-ticks"); now != sizes[name] {
					t.Fatalf("%s ticks on while frozen", name)
				}
			}
			c.Alive()
		}
		c.Thaw()
		for _, name := range names {
			y.await(name+" to go on", func() bool { return y.size(name+"-ticks") > sizes[name] })
		}
	}
	select {
	case <-c.Done():
		t.Error("freezing ended the command")
	default:
	}
}

func TestThawLeavesAloneWhatWasStoppedBefore(t *testing.T) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	y := newNoteDir(t)
	c := start(t, fmt.Sprintf(`sh -c '%s kill -STOP $$; %s' & %s`, y.sign("stopped"), y.ticking("stopped-later"), y.ticking("main")))
	stopped := y.signed("stopped")
	y.signed("main")
	y.await("the stop", func() bool { p, _ := readProc(stopped.pid); return p.stopped() })
	if err := c.Freeze(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c.Thaw()
	before := y.size("main-ticks")
	y.await("the thaw", func() bool { return y.size("main-ticks") > before })
	if p, _ := readProc(stopped.pid); !p.stopped() {
		select {
		case <-continued:
			t.Log("somebody continued this process, and with it its command")
		default:
			t.Errorf("a process that was stopped by its own will now is %c", p.state)
		}
	}
}

func TestAFrozenTreeStaysFrozenWhenTheCallerIsContinued(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, "trap : WINCH; "+y.ticking("main"))
	main := y.signed("main")
	if err := c.Freeze(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c.continued() // as at SIGCONT
	awaitOrders(t, c, main)
	if p, _ := readProc(main.pid); !halted(p) {
		t.Errorf("main is %c", p.state)
	}
	c.Thaw()
	before := y.size("main-ticks")
	y.await("the thaw", func() bool { return y.size("main-ticks") > before })
}

func TestMayContinueKeepsAStoppedCommandStopped(t *testing.T) {
	y := newNoteDir(t)
	asked := make(chan struct{}, 8)
	c := startArgs(t, &Options{MayContinue: func() bool { asked <- struct{}{}; return false }}, "/bin/sh", "-c", "trap : WINCH; "+y.ticking("main"))
	main := y.signed("main")
	signalProc(t, main, syscall.SIGSTOP)
	y.await("the stop", func() bool { p, _ := readProc(main.pid); return p.stopped() })
	c.continued()
	<-asked
	awaitOrders(t, c, main)
	if p, _ := readProc(main.pid); !p.stopped() {
		t.Errorf("main was continued although it may not be: %c", p.state)
	}
	c.Thaw()
	before := y.size("main-ticks")
	y.await("the thaw", func() bool { return y.size("main-ticks") > before })
}

func TestKillInterruptsAFreeze(t *testing.T) {
	y := newNoteDir(t)
	c := start(t, y.ticking("main"))
	main := y.signed("main")
	frozen := make(chan error, 1)
	go func() { frozen <- c.Freeze(context.Background()) }()
	kill(t, c)
	var left *SurvivorsError
	if err := <-frozen; err != nil && !errors.As(err, &left) {
		t.Error(err)
	}
	if living(main) {
		t.Error("alive after Kill")
	}
}
