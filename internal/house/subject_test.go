package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheCommitHookJudgesSubjects runs the hook that contributors switch on. It
// must refuse hard subjects, and let plain ones pass.
func TestTheCommitHookJudgesSubjects(t *testing.T) {
	hook, err := filepath.Abs(filepath.Join("..", "..", ".githooks", "commit-msg"))
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("the hook is a bash script: %v", err)
	}
	for subject, want := range map[string]string{
		"etcd: keep waiters awake after a restore":       "",
		"Whole words are compared, not their beginnings": "",
		"fixup! etcd: who waits":                         "",
		`Revert "etcd: what was there"`:                  "",
		"":                                               "is empty",
		"croft: who is told finds it so":                 "name the actor",
		"What was kept is gone":                          "name the actor",
		"sim: one that waits is woken":                   "name the actor",
		"docs: say more.":                                "full stop",
		"Work in progress":                               "does not say what changed",
		"WIP: etcd":                                      "does not say what changed",
		"x: " + strings.Repeat("long ", 14):              "at most 72",
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, []byte("# a comment\n"+subject+"\n\nbody\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(bash, hook, file).CombinedOutput()
		switch {
		case want == "" && err != nil:
			t.Errorf("%q was refused: %s", subject, out)
		case want != "" && (err == nil || !strings.Contains(string(out), want)):
			t.Errorf("%q: the hook said %q (%v), want a refusal with %q", subject, out, err, want)
		}
	}
}
