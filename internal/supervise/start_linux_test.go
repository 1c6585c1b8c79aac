package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

func TestTheStatusIsTheCommandsOwn(t *testing.T) {
	for script, want := range map[string]Status{
		"exit 0":                     {},
		"exit 1":                     {Code: 1},
		"exit 255":                   {Code: 255},
		"kill -TERM $$":              {Signal: syscall.SIGTERM},
		"kill -KILL $$":              {Signal: syscall.SIGKILL},
		"ulimit -c 0; kill -QUIT $$": {Signal: syscall.SIGQUIT},
	} {
		got, err := start(t, script).Wait()
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", script, got, err, want)
		}
		if want.Signal != 0 && got.ExitCode() != 128+int(want.Signal) {
			t.Errorf("%s: ExitCode() = %d", script, got.ExitCode())
		}
	}
}

func TestACommandThatCannotBeStartedSaysWhyAsAShellWould(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		testenv.WriteProgram(t, path, []byte(content), mode)
		return path
	}
	closed := filepath.Join(dir, "closed") // no user, not even root, can look into it
	if err := os.Symlink(closed, closed); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		command string
		code    int
		says    string
	}{
		"not in PATH":                  {"no-such-command-anywhere", 127, "not found"},
		"no such file":                 {dir + "/missing", 127, "no such file"},
		"no such folder":               {file("plain", "", 0o644) + "/x", 127, "no such file"},
		"empty":                        {"", 127, "empty"},
		"not executable":               {file("data", "echo hi", 0o644), 126, "chmod"},
		"not executable, in PATH":      {"data", 126, "chmod"},
		"a directory":                  {dir, 126, "directory"},
		"no interpreter":               {file("lost", "#!/no/such/interpreter\n", 0o755), 126, "interpreter"},
		"a program for something else": {file("alien", "\x7fNOPE\x00\x01\x02", 0o755), 126, "not a program"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Start(bounded(t), []string{test.command}, &Options{Env: []string{"PATH=/bin:" + closed + ":" + dir}})
			var failed *StartError
			if !errors.As(err, &failed) {
				t.Fatalf("Start = %v, %v; want a *StartError", c, err)
			}
			if failed.ExitCode() != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Start: %d %v; want %d and a word about %q", failed.ExitCode(), err, test.code, test.says)
			}
			if failed.Err == nil {
				t.Error("the system's error is lost")
			}
		})
	}
	if _, err := Start(bounded(t), nil, nil); err == nil {
		t.Error("no command at all was started")
	}
}

func TestAMissingWorkingDirectoryIsNotAMissingCommand(t *testing.T) {
	for _, dir := range []string{"/no/such/dir", "/dev/null"} {
		_, err := Start(bounded(t), []string{"true"}, &Options{Dir: dir})
		var failed *StartError
		if !errors.As(err, &failed) || failed.ExitCode() != 126 || !strings.Contains(err.Error(), "directory") {
			t.Errorf("in %s: %v", dir, err)
		}
	}
}

func TestAFailedStartLeavesNothingBehind(t *testing.T) {
	if _, err := Start(bounded(t), []string{"no-such-command-anywhere"}, nil); err == nil {
		t.Fatal("started")
	}
	wardens.Lock()
	defer wardens.Unlock()
	f, err := readFamily()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f[os.Getpid()] {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); strings.HasPrefix(string(line), "warden") {
			t.Errorf("a warden is left: %+v", p)
		}
	}
	if len(wardens.pids) != 0 {
		t.Errorf("wardens are remembered: %v", wardens.pids)
	}
}

func TestNothingStartsOnceTheContextIsOver(t *testing.T) {
	y := newNoteDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 5 {
		c, err := Start(ctx, []string{"/bin/sh", "-c", y.sign("ran") + forever}, nil)
		if err == nil {
			// It started before the context ended. Then it must run, and Kill
			// must end it as any other.
			kill(t, c)
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Start = %v", err)
		}
	}
	// If it ran for a moment, it has been killed.
	if y.has("ran") {
		text, _ := os.ReadFile(y.path("ran"))
		var pid int
		_, _ = fmt.Sscan(string(text), &pid)
		if p, ok := readProc(pid); ok && p.alive() {
			t.Errorf("pid %d runs although Start gave up", pid)
		}
	}
}

func TestAScriptWithoutAFirstLineIsRunByTheShell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	testenv.WriteProgram(t, path, []byte("exit $1\n"), 0o755)
	if status, err := startArgs(t, nil, path, "7").Wait(); err != nil || status.Code != 7 {
		t.Errorf("Wait = %v, %v", status, err)
	}
}

// output runs a command with a pipe as its stdout, and returns its output.
func output(t *testing.T, o Options, args ...string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o.Stdout = w
	c := startArgs(t, &o, args...)
	_ = w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := c.Wait(); err != nil || status != (Status{}) {
		t.Fatalf("%v: %v, %v", args, status, err)
	}
	return string(text)
}

func TestArgumentsEnvironmentAndDirectoryArriveUnchanged(t *testing.T) {
	odd := "spaces, \"quotes\", \n, \xff\xfe and --flags"
	if got := output(t, Options{}, "printf", "%s|", odd, "", "*"); got != odd+"||*|" {
		t.Errorf("arguments: %q", got)
	}
	got := output(t, Options{Env: []string{"PATH=/usr/bin:/bin", "A=1", "B=\xff", "A=2"}}, "env")
	for _, line := range []string{"A=2\n", "B=\xff\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("environment lacks %q: %q", line, got)
		}
	}
	if strings.Contains(got, "A=1") || strings.Contains(got, wardenVar) {
		t.Errorf("environment holds what it should not: %q", got)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, Options{Dir: dir}, "/bin/sh", "-c", "pwd; echo $PWD"); got != dir+"\n"+dir+"\n" {
		t.Errorf("directory: %q", got)
	}
	if got := output(t, Options{}, "env"); strings.Contains(got, wardenVar) {
		t.Errorf("the warden's mark leaks into the environment: %q", got)
	}
}

// TestTheStreamsMayComeInAnyOrder: a stream that must be moved out of another's
// way does not replace the warden's socket.
func TestTheStreamsMayComeInAnyOrder(t *testing.T) {
	for name, o := range map[string]Options{
		"errors to the output":      {Stderr: os.Stdout},
		"the output to the errors":  {Stdout: os.Stderr},
		"all but the input swapped": {Stdout: os.Stderr, Stderr: os.Stdout},
		"all of the input":          {Stdin: os.Stdin, Stdout: os.Stdin, Stderr: os.Stdin},
	} {
		if status, err := startArgs(t, &o, "/bin/sh", "-c", "exit 3").Wait(); err != nil || status.ExitCode() != 3 {
			t.Errorf("%s: %v, %v; want exit code 3", name, status, err)
		}
	}
}

func TestTheCommandGetsTheRealStreams(t *testing.T) {
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	go func() {
		_, _ = feed.WriteString("from the pipe\n")
		_ = feed.Close()
	}()
	got := output(t, Options{Stdin: in}, "/bin/sh", "-c", "readlink /proc/self/fd/0; cat")
	want, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", in.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if got != want+"\nfrom the pipe\n" {
		t.Errorf("got %q, want the file %s itself", got, want)
	}
	if got := output(t, Options{}, "/bin/sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/2"); got != "/dev/null\n/dev/null\n" {
		t.Errorf("streams not given are %q", got)
	}
}

func TestThePipeEndsWithTheCommandNotWithTheWarden(t *testing.T) {
	// output reads to the end of the pipe before Kill. It would hang if the
	// warden held the other end.
	if got := output(t, Options{}, "echo", "hi"); got != "hi\n" {
		t.Errorf("got %q", got)
	}
}

func TestDescriptorsMeantToBeInheritedAreInherited(t *testing.T) {
	c := newCaller(t, "cat <&3")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.ExtraFiles = []*os.File{r}
	_, _ = w.WriteString("through descriptor 3")
	_ = w.Close()
	if code := c.start().exit(); code != 0 || c.said() != "through descriptor 3" {
		t.Errorf("exit %d, %q", code, c.said())
	}
}

func TestTheCommandLeadsItsOwnGroupAndHoldsNothingOfTheWardens(t *testing.T) {
	got := output(t, Options{}, "/bin/sh", "-c", `cut -d" " -f1,5 /proc/$$/stat; ls /proc/$$/fd | tr "\n" " "`)
	var pid, group int
	if _, err := fmt.Sscan(got, &pid, &group); err != nil || pid != group {
		t.Errorf("pid %d is in group %d (%v)", pid, group, err)
	}
	_, fds, _ := strings.Cut(got, "\n")
	for _, fd := range strings.Fields(fds) {
		if len(fd) > 1 || fd > "2" {
			link, err := os.Readlink("/proc/self/fd/" + fd)
			if err != nil || strings.HasPrefix(link, "socket:") {
				t.Errorf("the command has descriptor %s (here: %s)", fd, link)
			}
		}
	}
}

func TestTheLastOfSeveralValuesCounts(t *testing.T) {
	got := lastOfEach([]string{"A=1", "B=2", "odd", "A=3", "odd", "B="})
	if want := []string{"odd", "A=3", "odd", "B="}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
