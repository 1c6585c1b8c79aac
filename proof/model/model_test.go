package model

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

var deep = flag.Bool("deep", false, "search for breaches in four terms, not three: minutes instead of seconds")

// bounds of the search. All broken twins show within the smaller one too, and
// every step of the model happens there.
func bounds() []string {
	if *deep {
		return []string{"TERMS=4", "REWINDS=2"}
	}
	return []string{"TERMS=3", "REWINDS=2"}
}

func checker(t *testing.T) (context.Context, Checker) {
	t.Helper()
	c := Checker{Spin: testenv.Program(t, "spin", "spin"), GCC: testenv.Program(t, "gcc", "gcc"), Folder: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	return ctx, c
}

// No law may break within the bounds of the model, and every step of the model
// must happen.
func TestTheProtocolKeepsItsLaws(t *testing.T) {
	t.Parallel()
	for name, defines := range map[string][]string{
		"while the clock keeps what anchoring assumes": nil,
		"and what is left when it does not":            {"SKEW"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c := checker(t)
			v, err := c.Check(ctx, false, append(bounds(), defines...)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %.0f MB", v.States, v.Megabyte)
			if v.Breach != "" {
				t.Errorf("%s\n%s", v.Breach, strings.Join(v.Story, "\n"))
			}
			if len(v.Unreached) > 0 {
				t.Errorf("nothing ever takes these steps: %q", v.Unreached)
			}
			if v.States < 100_000 {
				t.Errorf("only %d states: the model has become too small to say anything", v.States)
			}
		})
	}
}

// Each twin lacks one thing that the laws rest on. The checker must find a
// counterexample.
func TestBrokenTwinsAreFoundOut(t *testing.T) {
	t.Parallel()
	for _, twin := range []struct {
		does    string
		defines []string
		breach  string // part of the assertion that must fail
		law     string // the law behind that assertion
	}{
		{"the fence is not checked", []string{"NO_FENCE"}, ">=latest[", "law 3: nothing of an earlier term after a later one"},
		{"tokens are not anchored", []string{"NO_ANCHOR"}, "token[terms]>newest", "law 2: tokens rise, also after the store forgot"},
		{"a late acquire resurrects", []string{"RESURRECT"}, "history[now]", "law 1: a secret is granted once"},
		{"the fence is not raised before reading", []string{"NO_RAISE"}, ".sent[", "no update is lost"},
		{"an equal token is admitted from any grant", []string{"ANY_GRANT", "SKEW"}, ".grant", "law 3: at one token only one grant"},
	} {
		t.Run(twin.does, func(t *testing.T) {
			t.Parallel()
			ctx, c := checker(t)
			v, err := c.Check(ctx, true, append(bounds(), twin.defines...)...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(v.Breach, twin.breach) {
				t.Fatalf("found %q, want a breach of an assertion with %q", v.Breach, twin.breach)
			}
			t.Logf("caught by %q: %s\n%s", twin.law, v.Breach, strings.Join(v.Story, "\n"))
		})
	}
}

// If the checker ran out of depth or memory, its output must not count as a
// verdict.
func TestAnUnfinishedSearchIsNoProof(t *testing.T) {
	for name, out := range map[string]string{
		"depth":  "error: max search depth too small\n  10 states, stored\n 1.0 total actual memory usage\nerrors: 0\n",
		"memory": "Warning: Search not completed\n  10 states, stored\n 1.0 total actual memory usage\nerrors: 0\n",
		"killed": "",
	} {
		if v, err := parse([]byte(out)); err == nil {
			t.Errorf("%s: taken for %+v", name, v)
		}
	}
}

// On a fast machine the model and its counterexample are written in the same
// second. Spin then warns first.
func TestACounterexampleIsReadAfterWarnings(t *testing.T) {
	steps := story([]byte("spin: warning, \"croft.pml\" is newer than croft.pml.trail\n  the store grants term 1\n  term 1 is over\nspin: croft.pml:95, Error: assertion violated\n#processes: 3\n  now = 1\n"))
	if strings.Join(steps, "; ") != "the store grants term 1; term 1 is over" {
		t.Errorf("%q", steps)
	}
}
