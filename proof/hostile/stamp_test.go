package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
)

// A neighbour writes with tokens that no store has given out, up to the
// highest. Guards refuse those that are too far ahead. After the others the
// rightful owner gets a higher token, and goes on writing.
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
	writesOn := func(text string) {
		t.Helper()
		if out, code := owner(text); code != 0 {
			t.Errorf("the rightful owner: exit code %d:\n%s", code, out)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != text+"\n" {
			t.Errorf("the file holds %q, %v", got, err)
		}
	}
	writesOn("second")
	for _, days := range []int{10, 300, 364, 364} {
		ahead := fence.Token(time.Now().AddDate(0, 0, days).UnixMicro())
		forged := fence.Stamp{Key: "reports/daily", Token: ahead, Grant: fence.Grant(strings.Repeat("0", 32))}.String()
		if out, code := run("forged", "write", target, "--stamp", forged); code != 12 {
			t.Errorf("a made-up stamp, and the store knows: exit code %d, want 12:\n%s", code, out)
		}
		nowhere := filepath.Join(folder, "no-store")
		if out, code := run("forged", "write", target, "--store", nowhere, "--stamp", forged); code != 0 {
			t.Fatalf("write with a token %d days ahead: exit code %d:\n%s", days, code, out)
		}
		writesOn(fmt.Sprintf("after %d days", days))
	}
}
