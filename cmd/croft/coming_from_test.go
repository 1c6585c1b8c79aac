package main

import (
	"os"
	"strings"
	"testing"
)

// TestCroftRefusesNoCommandLineOfComingFrom: a reader copies them.
func TestCroftRefusesNoCommandLineOfComingFrom(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```\n")
		found += checkLines(t, block)
	}
	if found < 9 {
		t.Errorf("%d command lines on the page", found)
	}
}
