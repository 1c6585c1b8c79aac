//go:build unix

package drill_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAStoryThatABusyMachineSpoiltIsToldAgain: the holder does not get to run,
// and its lease ends too early. That is no failure, and proves nothing.
func TestAStoryThatABusyMachineSpoiltIsToldAgain(t *testing.T) {
	t.Parallel()
	o := options(t, filepath.Join(t.TempDir(), "store"))
	made := o.Worker
	var started []*exec.Cmd // used only by the goroutine that also calls Progress
	o.Worker = func() *exec.Cmd {
		started = append(started, made())
		return started[len(started)-1]
	}
	starved, again := false, 0
	o.Progress = func(scene, text string) {
		if strings.Contains(text, "once more") {
			again++
		}
		if scene != "stale-release" || starved {
			return
		}
		starved = true
		b := started[1].Process
		if err := b.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		time.Sleep(o.TTL + o.TTL/10)
		if err := b.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	r := runStaged(t, o)
	if !r.Good() || again == 0 || !strings.HasSuffix(r.Scenes[0].Key, "/staged-2") && again == 1 {
		t.Errorf("told again %d times, at last with the key %s", again, r.Scenes[0].Key)
	}
}
