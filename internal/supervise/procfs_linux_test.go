package supervise

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

const statTail = " -1 4194560 88 0 0 0 0 0 0 0 20 0 %d 0 %d 2699264 416 18446744073709551615"

func TestAProcessNameCannotForgeItsParent(t *testing.T) {
	for _, name := range []string{"sh", "", "a b", ") R 1 1", "((", "x) Z 1 (", "new\nline"} {
		text := fmt.Sprintf("42 (%s) S 7 42 42 0"+statTail, name, 3, 99)
		got, ok := parseStat([]byte(text))
		if want := (proc{pid: 42, parent: 7, state: 'S', threads: 3, start: 99}); !ok || got != want {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
	}
}

func TestTheSystemsOwnStatIsUnderstood(t *testing.T) {
	p, ok := readProc(os.Getpid())
	if !ok || p.pid != os.Getpid() || p.parent != os.Getppid() || !p.alive() || p.start == 0 || p.threads < 1 {
		t.Errorf("%+v, %v", p, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (sh) S 7 42 42 0" + statTail)
	f.Add("42 (sh")
	f.Add(")(")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		// For any process name, the answer is a whole process or none.
		if p, ok := parseStat([]byte(text)); ok == (p == proc{}) {
			t.Errorf("%q: %+v, %v", text, p, ok)
		}
	})
}

func TestTheWalkGoesFromParentsToChildrenAndSkipsOthers(t *testing.T) {
	f := family{}
	for _, e := range [][2]int{{1, 2}, {1, 3}, {2, 4}, {4, 5}, {3, 6}, {6, 7}, {9, 10}, {5, 2}} { // the last makes a cycle
		f[e[0]] = append(f[e[0]], proc{pid: e[1], parent: e[0]})
	}
	if got, want := pids(f.below(1, map[int]bool{6: true})), []int{2, 3, 4, 5}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestASignalIsNeverSentToARecycledPid(t *testing.T) {
	// This process, but with another start time. If the signal arrived, it
	// would kill the test.
	p, ok := readProc(os.Getpid())
	if !ok {
		t.Fatal("no self")
	}
	p.start++
	if err := send(p, 9); err != nil {
		t.Error(err)
	}
}
