package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stagesMakefile has stages that pass, fail with a report, or fail without one.
const stagesMakefile = `
good:
	@echo all is well
beside:
	@echo said beside
reports:
	@for i in $$(seq 300); do echo line $$i; done; echo TestX is wrong >"$$REPORT"; exit 1
prints:
	@for i in $$(seq 300); do echo row $$i; done; echo the reason; exit 3
`

func TestStagesSayAtTheEndWhatFailed(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "stages"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"bash", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: make test needs it, too", err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"Makefile": stagesMakefile, "tools/stages": string(script)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stages := func(names ...string) (string, int) {
		c := exec.Command("bash", append([]string{filepath.Join(dir, "tools", "stages")}, names...)...)
		c.Env = append(os.Environ(), "MAKEFLAGS=", "REPORT=")
		out, _ := c.CombinedOutput()
		return string(out), c.ProcessState.ExitCode()
	}

	out, code := stages("beside&", "reports", "prints", "good")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	_, end, _ := strings.Cut(out, "== reports FAILED")
	for _, want := range []string{
		"TestX is wrong", "make reports", "== prints FAILED", "row 300", "the reason", "make prints",
		"good         passed", "beside       passed", "reports      FAILED", "together: ",
	} {
		if !strings.Contains(end, want) {
			t.Errorf("the end does not say %q", want)
		}
	}
	if strings.Contains(end, "row 100\n") || strings.Contains(end, "line 300") {
		t.Error("the end repeats everything")
	}
	if !strings.Contains(out, "said beside") || !strings.Contains(out, "line 150") {
		t.Error("the output of a stage is not shown")
	}
	if t.Failed() {
		t.Log(out)
	}
	if out, code := stages("good"); code != 0 || strings.Contains(out, "FAILED") {
		t.Errorf("exit %d: %s", code, out)
	}
}
