package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestAMadeUpStampShutsNobodyOut: a neighbour writes with the highest token
// there is. It is refused, and the rightful owner writes on.
func TestAMadeUpStampShutsNobodyOut(t *testing.T) {
	t.Parallel()
	bin := built(t)
	folder := t.TempDir()
	target := filepath.Join(folder, "out.txt")
	run := func(stdin string, args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Stdin = folder, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "CROFT_STORE="+filepath.Join(folder, "store"))
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	owner := func(text string) (string, int) {
		return run("", "run", "reports/daily", "--guard", target, "--", "sh", "-c", fmt.Sprintf("echo %s | %q write %q", text, bin, target))
	}
	if out, code := owner("first"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	for _, token := range []fence.Token{fence.MaxToken, 1 << 52, 1 << 51} {
		forged := fence.Stamp{Key: "reports/daily", Token: token, Grant: fence.Grant(strings.Repeat("0", 32))}.String()
		if out, code := run("forged", "write", target, "--stamp", forged); code != 2 {
			t.Errorf("write with token %d: exit code %d, want 2:\n%s", token, code, out)
		}
		if out, code := run("", "guard", "raise", target, "--stamp", forged); code != 2 {
			t.Errorf("raise to token %d: exit code %d, want 2:\n%s", token, code, out)
		}
	}
	if out, code := owner("second"); code != 0 {
		t.Errorf("the rightful owner: exit code %d:\n%s", code, out)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "second\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}
