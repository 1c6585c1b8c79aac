//go:build unix

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestMain lets the test program play its own agents, as the program does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTheStoryIsTrue: in whatever order things happen, the frozen agent has
// changed nothing, and everything was done once.
func TestTheStoryIsTrue(t *testing.T) {
	var out bytes.Buffer
	folder := t.TempDir()
	if err := tell(t.Context(), &out, folder); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	story := out.String()
	for what, want := range map[string]string{
		"ann is frozen in the middle":               `ann +is frozen`,
		"ann's item is taken from her":              `reconciler +"north", which ann has, waits again: no heartbeat for`,
		"the next one begins with her checkpoint":   `(bob|cleo) +takes "north" under token \d+, and begins with what was saved: the research of north, by ann`,
		"her file is refused":                       `ann +publishes "north": REFUSED`,
		"her report is refused":                     `ann +reports progress: REFUSED`,
		"her completion is refused":                 `ann +completes "north", with a message to the newsroom: REFUSED`,
		"the newsroom hears of north from another":  `newsroom +hears of "north" by (bob|cleo) `,
		"everything was told once":                  `newsroom +has heard of 5 reports, under 5 keys`,
		"operators can read what was refused":       `complete +of "north" by ann under token \d+, because (bob|cleo) had it under`,
		"and that she did not get as far as a file": `north +done by (bob|cleo) in attempt \d+; its file says: the report on north, by (bob|cleo)`,
	} {
		if !regexp.MustCompile(want).MatchString(story) {
			t.Errorf("the story does not say that %s (%s)", what, want)
		}
	}
	for _, region := range regions {
		text, err := os.ReadFile(reportPath(folder, region))
		if err != nil || !strings.HasPrefix(string(text), "the report on "+region) || strings.Contains(string(text), "by ann") {
			t.Errorf("%s.txt: %q, %v", region, text, err)
		}
		if n := strings.Count(story, `hears of "`+region+`"`); n != 1 {
			t.Errorf("the newsroom heard %d times of %s", n, region)
		}
	}
	if t.Failed() {
		t.Log(story)
	}
}
