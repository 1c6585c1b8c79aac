//go:build linux

package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// all is set by make proof. Then there are 200 takeovers, from a seed that
// differs each time. Otherwise every fault happens once.
var all = flag.Bool("all", false, "play 200 takeovers instead of 12")

// TestMain lets the test program play the agents and their servers, as the
// program does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "files") {
		main()
		return
	}
	os.Exit(m.Run())
}

// at returns a place for a test. The processes write little, but a disk that is
// busy with the syncs of others may hold an agent up for longer than its TTL.
func at(t *testing.T, program string) *place {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes and real TTLs take a while")
	}
	folder := testenv.Memory(t)
	if program == "" {
		program = folder + "/croft"
		if err := testenv.BuildCroft(program); err != nil {
			t.Fatal(err)
		}
	}
	p, err := newPlace(t.Context(), folder, program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// TestTheStoryAndItsRounds share one program. The frozen agent has changed
// nothing after her call in doubt, and her last call is refused. In the rounds
// the same holds for every fault.
func TestTheStoryAndItsRounds(t *testing.T) {
	p := at(t, "")
	var out bytes.Buffer
	if err := p.tell(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	story := out.String()
	for what, want := range map[string]string{
		"ann's call is in doubt":              `ann +her call is answered: Refused by croft \(unknown\).*not known whether`,
		"her next call is refused":            `ann +write_file: Refused by croft \(not_owned\).*now belongs to bob`,
		"the file is bob's":                   `file +bob's plan`,
		"operators can read what was refused": `store +has noted a refused write of ann under token \d+ \(not_owned\)`,
	} {
		if !regexp.MustCompile(want).MatchString(story) {
			t.Errorf("the story does not say that %s (%s)\n%s", what, want, story)
		}
	}
	if err := os.Remove(p.folder + "/journal"); err != nil {
		t.Fatal(err)
	}
	rounds, seed := len(faults), uint64(1)
	if *all {
		rounds, seed = 200, uint64(time.Now().UnixNano())
	}
	out.Reset()
	tally, err := p.play(t.Context(), &out, rounds, seed)
	t.Logf("seed %d\n%s", seed, &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(tally.Faults) != len(faults) || tally.Refused != rounds {
		t.Errorf("%s; want %d kinds of faults, and a refusal in every round", tally, len(faults))
	}
}

// TestWithoutCroftAReplacedAgentWrites: the rounds find it.
func TestWithoutCroftAReplacedAgentWrites(t *testing.T) {
	p := at(t, unguarded)
	_, err := p.play(t.Context(), &bytes.Buffer{}, 1, 1)
	if err == nil || !strings.Contains(err.Error(), "is told: written") {
		t.Errorf("a round without croft: %v", err)
	}
	if err := p.judge(); err == nil || !strings.Contains(err.Error(), "of a replaced agent took effect") &&
		!strings.Contains(err.Error(), "came after one with token") {
		t.Errorf("the judge says %v", err)
	}
}
