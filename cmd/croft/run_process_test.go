//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// patience bounds every wait for an event that must happen. It measures
// nothing, because the machine may be slow.
const patience = 60 * time.Second

// ttl is for leases that must end while a test waits, but not before the test
// has looked. On a busy machine a process can stand still for seconds.
const ttl = "6s"

// station is one user's view of a store: croft processes that share it.
type station struct {
	t    *testing.T
	dir  string
	path string   // PATH with a croft in it
	env  []string // further variables of croft
}

// newStation makes a folder and a croft for a test. The test binary acts as
// croft if it is called by that name.
func newStation(t *testing.T) *station {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes and real TTLs take a while")
	}
	s := &station{t: t, dir: testenv.Memory(t)} // croft waits half a second for the note of a refusal
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\nCROFT_TEST_MAIN=1 exec %q \"$@\"\n", self)
	testenv.WriteProgram(t, filepath.Join(bin, "croft"), []byte(wrapper), 0o700)
	s.path = bin + ":" + os.Getenv("PATH")
	return s
}

// command is a croft on the station's store. It has not been started.
func (s *station) command(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.dir, "bin", "croft"), args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10", "PATH="+s.path, "CROFT_STORE="+filepath.Join(s.dir, "store"))
	c.Env = append(c.Env, s.env...)
	return c
}

// croft starts a croft process in a session of its own, so that a walk over its
// tree can stop all of it.
func (s *station) croft(args ...string) (*exec.Cmd, *bytes.Buffer) {
	s.t.Helper()
	var out bytes.Buffer
	c := s.command(args...)
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Process.Kill() })
	return c, &out
}

// listening starts a croft that others call, and returns its address, which it
// prints first.
func (s *station) listening(name string, args ...string) (*exec.Cmd, string) {
	s.t.Helper()
	out, err := os.Create(filepath.Join(s.dir, name+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	c := s.command(args...)
	c.Stdout, c.Stderr = out, os.Stderr
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	var first struct{ Address string }
	line, _, _ := strings.Cut(s.read(name+".out"), "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return c, first.Address
}

// script writes an executable shell script.
func (s *station) script(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	testenv.WriteProgram(s.t, path, []byte("#!/bin/sh\n"+text), 0o700)
	return path
}

// read waits for a file that is not empty.
func (s *station) read(name string) string {
	s.t.Helper()
	var text []byte
	s.until("the file "+name, func() bool {
		text, _ = os.ReadFile(filepath.Join(s.dir, name))
		return len(text) > 0
	})
	return strings.TrimSpace(string(text))
}

func (s *station) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited %s for %s in vain", patience, what)
		}
	}
}

// show is the store's record of a key.
func (s *station) show(key string) (v struct {
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	State string `json:"state"`
	Cause string `json:"cause"`

	Deadline time.Time `json:"deadline"`
},
) {
	s.t.Helper()
	c, out := s.croft("show", "--json", key)
	if err := c.Wait(); err != nil {
		s.t.Fatalf("croft show: %v\n%s", err, out)
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		s.t.Fatalf("croft show: %v\n%s", err, out)
	}
	return v
}

func exitCode(t *testing.T, c *exec.Cmd, out *bytes.Buffer) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
		return c.ProcessState.ExitCode()
	case <-time.After(patience):
		_ = c.Process.Kill()
		<-done
		t.Fatalf("croft did not end in %s; it printed:\n%s", patience, out)
		return -1
	}
}

// descendants lists a process and all below it, as /proc shows them.
func descendants(t *testing.T, root int) []int {
	t.Helper()
	parents := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		after := text[bytes.LastIndexByte(text, ')')+1:] // the name may contain anything
		fields := strings.Fields(string(after))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		for pid, parent := range parents {
			if parent == tree[i] && !slices.Contains(tree, pid) {
				tree = append(tree, pid)
			}
		}
	}
	return tree
}

// stopAll stops processes. It ignores those that have ended meanwhile, such as
// a script's sleeps.
func stopAll(t *testing.T, tree []int) {
	t.Helper()
	for _, pid := range tree {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// waitedForCPU is how long processes were ready to run and did not, by the
// kernel's count. On an idle machine that is milliseconds.
func waitedForCPU(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			var ran, waited int64
			if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
				sum += time.Duration(waited)
			}
		}
	}
	return sum
}

// lives reports whether a process exists and is no zombie.
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return after[0] != "Z" && after[0] != "X"
}

// A worker sleeps past its lease. Another takes over and writes. The first
// wakes up and writes. Croft was made for this case.
func TestLaw3AStoppedTreeLosesToItsSuccessor(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	first := s.script("first", `echo "$CROFT_TOKEN" >first-token
while [ ! -e woken ]; do sleep 0.02; done
echo stale | croft write out.txt
echo $? >first-write
sleep 1000
`)
	one, oneOut := s.croft("--owner", "one", "run", "job", "--ttl", ttl, "--guard", "out.txt", "--", first)
	s.read("first-token")
	tree := descendants(t, one.Process.Pid)
	if len(tree) < 3 {
		t.Fatalf("the tree of the first run is %v; croft, its warden and the script are expected", tree)
	}
	stopAll(t, tree)

	second := s.script("second", `echo good | croft write out.txt && echo "$CROFT_TOKEN" >second-token
while [ ! -e enough ]; do sleep 0.02; done
`)
	two, twoOut := s.croft("--owner", "two", "run", "job", "--guard", "out.txt", "--wait", "1m", "--", second)
	secondToken, firstToken := s.read("second-token"), s.read("first-token")
	if secondToken <= firstToken {
		t.Errorf("the second token %s is not above the first %s", secondToken, firstToken)
	}

	if err := os.WriteFile(filepath.Join(s.dir, "woken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	if code := exitCode(t, one, oneOut); code != cli.ExitNotOwned {
		t.Errorf("the first run exited %d, want %d; it printed:\n%s", code, cli.ExitNotOwned, oneOut)
	}
	for _, pid := range tree {
		if lives(pid) {
			t.Errorf("process %d of the first run lives on", pid)
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "first-write")); err == nil && strings.TrimSpace(string(text)) != "13" {
		t.Errorf("the stale write exited %s, want 13", text)
	}
	if text := s.read("out.txt"); text != "good" {
		t.Errorf("the artifact holds %q; it must be the second's", text)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, two, twoOut); code != 0 {
		t.Errorf("the second run exited %d; it printed:\n%s", code, twoOut)
	}
	if rec := s.show("job"); rec.Owner != "two" || rec.Cause != "expired" {
		t.Errorf("the record says %+v; want owner two, cause expired", rec)
	}
}

// Nobody else was granted the key while all processes stood still. The work
// goes on under the same token.
func TestAStoppedTreeThatNobodyReplacedGoesOn(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	script := s.script("work", `echo "$CROFT_TOKEN" >token
while [ ! -e woken ]; do sleep 0.02; done
echo mine | croft write out.txt
echo $? >write
while [ ! -e enough ]; do sleep 0.02; done
exit 7
`)
	run, out := s.croft("run", "job", "--ttl", ttl, "--", script)
	token := s.read("token")
	tree := descendants(t, run.Process.Pid)
	stopAll(t, tree)
	// The pause is longer than the TTL. The warden must see that it stood still
	// itself, and takes half a second for that.
	time.Sleep(time.Until(s.show("job").Deadline) + time.Second)
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "woken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.read("write"); code != "0" {
		t.Errorf("the write after the pause exited %s", code)
	}
	if rec := s.show("job"); fmt.Sprint(rec.Token) != token || rec.State != "held" {
		t.Errorf("the record says %+v; want it held with token %s", rec, token)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, run, out); code != 7 {
		t.Errorf("the run exited %d, want the command's 7; it printed:\n%s", code, out)
	}
}

// Croft alone stands still. Its warden kills the command in time. When croft
// wakes up, it does not take that for the command's own end.
func TestLaw5ACommandDiesInTimeWhileCroftStandsStill(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	script := s.script("work", "echo $$ >pid\nsleep 1000\n")
	run, out := s.croft("run", "job", "--ttl", ttl, "--status-file", "status", "--", script)
	pid, err := strconv.Atoi(s.read("pid"))
	if err != nil {
		t.Fatal(err)
	}
	stopAll(t, []int{run.Process.Pid})
	s.until("the end of the command", func() bool { return !lives(pid) })
	if err := run.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, run, out); code != cli.ExitNotOwned {
		t.Errorf("the run exited %d, want %d; it printed:\n%s", code, cli.ExitNotOwned, out)
	}
	if status := s.read("status"); !strings.Contains(status, `"verdict":"lost","exit":12,"by":"croft"`) || !strings.Contains(status, `"loss":"expired"`) {
		t.Errorf("the status file says %s", status)
	}
}

// Croft is killed. Everything it started dies with it, and the key passes on
// after its TTL.
func TestKillingCroftKillsItsTreeAndTheLeasePassesOn(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	script := s.script("work", `sleep 1000 &
setsid sh -c 'echo $$ >grandchild; sleep 1000' &
(setsid sh -c '(sleep 1000 & echo $! >daemon; wait) &' &)
while [ ! -s grandchild ] || [ ! -s daemon ]; do sleep 0.02; done
echo "${CROFT_LEASE#@}" >lease
echo $$ >ready
sleep 1000
`)
	run, _ := s.croft("--owner", "one", "run", "job", "--ttl", ttl, "--", script)
	s.read("ready")
	tree := descendants(t, run.Process.Pid)
	for _, name := range []string{"ready", "grandchild", "daemon"} {
		pid, err := strconv.Atoi(s.read(name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(tree, pid) {
			tree = append(tree, pid)
		}
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	for _, pid := range tree {
		s.until(fmt.Sprintf("the end of process %d", pid), func() bool { return !lives(pid) })
	}
	if secret := s.read("lease"); filepath.IsAbs(secret) {
		if _, err := os.Stat(secret); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file with the lease's secret is still there: %v", err)
		}
	} else {
		t.Errorf("CROFT_LEASE named the file %q", secret)
	}
	next, out := s.croft("--owner", "two", "run", "job", "--wait", "1m", "--", "true")
	if code := exitCode(t, next, out); code != 0 {
		t.Fatalf("the next run exited %d; it printed:\n%s", code, out)
	}
	if rec := s.show("job"); rec.Owner != "two" || rec.Cause != "expired" {
		t.Errorf("the record says %+v; want owner two, cause expired", rec)
	}
}

// The store goes away. The command gets TERM, then KILL, and is dead before
// another owner could be granted the key.
func TestLaw5TheCommandIsDeadBeforeTheStoresDeadline(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	script := s.script("work", `trap 'echo term >term' TERM
echo $$ >pid
while :; do echo >alive; sleep 0.02; done
`)
	run, out := s.croft("run", "job", "--ttl", "10s", "--grace", "2s", "--", script)
	pid, err := strconv.Atoi(s.read("pid"))
	if err != nil {
		t.Fatal(err)
	}
	// From here on renewals fail, because the store's folder was moved. The
	// record stays as it was.
	away := filepath.Join(s.dir, "away")
	if err := os.Rename(filepath.Join(s.dir, "store"), away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "store"), []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	killers := descendants(t, run.Process.Pid)[:2] // croft and its warden
	before, starved := waitedForCPU(killers), time.Duration(0)
	s.until("the end of the command", func() bool {
		starved = max(starved, waitedForCPU(killers)-before)
		return !lives(pid)
	})
	alive, err := os.Stat(filepath.Join(s.dir, "alive")) // this test may look late
	if err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, run, out); code != cli.ExitNotOwned {
		t.Errorf("the run exited %d, want %d; it printed:\n%s", code, cli.ExitNotOwned, out)
	}
	s.read("term")
	if err := os.Remove(filepath.Join(s.dir, "store")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, filepath.Join(s.dir, "store")); err != nil {
		t.Fatal(err)
	}
	// The store's clock is this machine's. A process without a processor cannot
	// kill, so the time that croft and its warden waited for one is allowed.
	if rec := s.show("job"); !alive.ModTime().Before(rec.Deadline.Add(starved)) {
		t.Errorf("the command was alive at %s, after the store's deadline %s; croft was ready to run but waited %s",
			alive.ModTime(), rec.Deadline, starved)
	}
	if !strings.Contains(out.String(), "killed after its grace") {
		t.Errorf("a command that ignores TERM must be killed after its grace; croft printed:\n%s", out)
	}
}
