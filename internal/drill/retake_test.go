package drill

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
)

// TestASceneThatABusyMachineSpoiltIsPlayedAgain: with fresh workers and a key
// of its own. It is not repeated for ever, and never to hide a failure.
func TestASceneThatABusyMachineSpoiltIsPlayedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		takes []verdict // of each take; the last one also for all that follow
		want  int
		last  Result
	}{
		"not spoilt":         {[]verdict{ok("fine")}, 1, OK},
		"spoilt once":        {[]verdict{tooBusy("it ran out"), ok("fine")}, 2, OK},
		"always spoilt":      {[]verdict{tooBusy("it ran out")}, takes, NotDone},
		"undone is no spoil": {[]verdict{notDone(unknown.Err)}, 1, NotDone},
	} {
		t.Run(name, func(t *testing.T) {
			d := &director{
				keys: "drill/", patience: 30 * time.Second,
				o: Options{
					Store: mem.New(nil), URL: "mem://retake", Progress: func(string, string) {}, Target: func(p string) string { return p },
					Worker: func() *exec.Cmd {
						cmd := exec.Command(os.Args[0])
						cmd.Env = append(os.Environ(), "DRILL_TEST_WORKER=1")
						return cmd
					},
				},
			}
			defer func() {
				for _, w := range d.workers {
					w.kill()
				}
			}()
			first, err := d.startWorker(t.Context(), "A")
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			var last *worker
			scene := d.play(t.Context(), script{name: "s", play: func(_ context.Context, s *stage) {
				s.step("x", "tried", "expected", c.takes[min(len(keys), len(c.takes)-1)])
				keys, last = append(keys, s.Key), s.cast["A"]
			}}, map[string]*worker{"A": first})
			if len(keys) != c.want || len(scene.Steps) != 1 || scene.Steps[0].Result != c.last {
				t.Fatalf("played %d times to %+v; want %d times to %s", len(keys), scene.Steps, c.want, c.last)
			}
			if c.want > 1 && (keys[0] == keys[1] || last == first) {
				t.Errorf("the next take had the key %s and the worker of the one before", keys[1])
			}
		})
	}
}

func TestAFailureIsNotPlayedAway(t *testing.T) {
	s := &stage{director: &director{}}
	s.step("a", "", "", failed("stale"))
	s.step("b", "", "", tooBusy("later"))
	if s.spoilt() {
		t.Error("a scene in which something failed would be played again")
	}
	s = &stage{director: &director{o: Options{Unguarded: true}}}
	s.step("a", "", "", verdict{result: Corrupted})
	s.step("b", "", "", tooBusy("later"))
	if !s.spoilt() {
		t.Error("a corruption that was to be shown keeps a spoilt scene from being played again")
	}
}
