package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFormulaNamesTheArchivesWithTheirSums(t *testing.T) {
	out := t.TempDir()
	var want []string
	for _, p := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
		name := "croft_v1.2.3_" + p + ".tar.gz"
		write(t, filepath.Join(out, name), p)
		want = append(want,
			`url "https://github.com/croft-dev/croft/releases/download/v1.2.3/`+name+"\"\n      sha256 \""+sum(t, filepath.Join(out, name))+`"`)
	}
	text, err := writeFormula(tagged, out)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(want, `version "1.2.3"`, "on_macos do", "on_linux do", `bin.install "croft"`) {
		if strings.Count(text, line) != 1 {
			t.Errorf("the formula does not have this once: %s\n%s", line, text)
		}
	}
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		return // a syntax check more, on machines with Ruby
	}
	file := filepath.Join(out, formulaFile)
	write(t, file, text)
	if said, err := exec.CommandContext(t.Context(), ruby, "-c", file).CombinedOutput(); err != nil {
		t.Errorf("ruby -c: %v\n%s", err, said)
	}
}
