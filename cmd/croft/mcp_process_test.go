//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mcpAgent is an agent with a croft mcp of its own.
type mcpAgent struct {
	s      *station
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr *bytes.Buffer
}

// mcp starts a croft mcp under a lease. The lease is as CROFT_LEASE names it.
func (s *station) mcp(lease string, flags ...string) *mcpAgent {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	files := filepath.Join(s.dir, "files")
	if err := os.MkdirAll(files, 0o700); err != nil {
		s.t.Fatal(err)
	}
	server := s.script("server-"+strconv.Itoa(len(flags)), fmt.Sprintf("CROFT_TEST_MCP_SERVER=%q exec %q\n", files, self))
	a := &mcpAgent{s: s, lines: make(chan string, 100), stderr: &bytes.Buffer{}}
	a.cmd = s.command(append(append([]string{"mcp", "--read", "read_file", "--read", "lease"}, flags...), "--", server)...)
	a.cmd.Env = append(a.cmd.Env, "CROFT_LEASE="+lease)
	a.cmd.Stderr = a.stderr
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	go func() {
		defer close(a.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			a.lines <- scan.Text()
		}
	}()
	return a
}

// call calls a tool and returns the text of its result.
func (a *mcpAgent) call(tool, path, text string) string {
	a.s.t.Helper()
	_, err := fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"path":%q,"text":%q}}}`+"\n",
		tool, path, text)
	if err != nil {
		a.s.t.Fatal(err)
	}
	return a.answer()
}

func (a *mcpAgent) answer() string {
	a.s.t.Helper()
	select {
	case line := <-a.lines:
		var m struct {
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || len(m.Result.Content) != 1 {
			a.s.t.Fatalf("the answer is %s; %s", line, a.stderr)
		}
		return m.Result.Content[0].Text
	case <-time.After(patience):
		a.s.t.Fatalf("no answer came; %s", a.stderr)
	}
	return ""
}

// TestAThawedAgentsToolCallBounces is the story that croft mcp is for: an agent
// is frozen past its TTL, another takes the task over, and the first thaws. Its
// next write is refused, the file is the successor's, and the refusal is on
// record.
func TestAThawedAgentsToolCallBounces(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	holding := s.hold("tasks/a", "--ttl", ttl, "--owner", "ann")
	ann := s.mcp("@" + holding.next("granted").LeaseFile)
	if got := ann.call("write_file", "plan", "ann's"); got != "written" {
		t.Fatalf("ann's first write: %s", got)
	}
	if got := ann.call("lease", "", ""); got != "" {
		t.Errorf("the server got the lease %s", got)
	}
	for _, c := range []*exec.Cmd{holding.cmd, ann.cmd} { // the agent's process, and its proxy
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	next := s.hold("tasks/a", "--ttl", "1h", "--wait", "1m", "--owner", "bob")
	bob := s.mcp("@" + next.next("granted").LeaseFile)
	if got := bob.call("write_file", "plan", "bob's"); got != "written" {
		t.Fatalf("the successor's write: %s; %s", got, bob.stderr)
	}
	for _, c := range []*exec.Cmd{holding.cmd, ann.cmd} {
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if got := ann.call("write_file", "plan", "ann's again"); !strings.Contains(got, "Refused by croft (not_owned)") ||
		!strings.Contains(got, "belongs to bob") {
		t.Errorf("the thawed agent's write: %s", got)
	}
	if got := ann.call("read_file", "plan", ""); got != "bob's" {
		t.Errorf("the file is %s, want bob's", got)
	}
	s.until("the refusal on record", func() bool {
		_, out := s.run("inventory", "--refusals")
		return strings.Contains(out, "mcp/tasks/a") && strings.Contains(out, "ann")
	})
	_ = ann.in.Close()
	if err := ann.cmd.Wait(); err != nil {
		t.Errorf("the proxy of an agent that leaves: %v; %s", err, ann.stderr)
	}
}

// TestACallInDoubtKillsTheServersTree: also what the server has started. The
// resource closes, and an operator can open it.
func TestACallInDoubtKillsTheServersTree(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	holding := s.hold("tasks/a", "--ttl", "1h")
	lease := "@" + holding.next("granted").LeaseFile
	a := s.mcp(lease, "--answer-within", "3s", "--settle", "forever")
	if got := a.call("hang", "pid", ""); !strings.Contains(got, "Refused by croft (unknown)") || !strings.Contains(got, "not known") {
		t.Errorf("a call without an answer: %s", got)
	}
	pid, err := strconv.Atoi(s.read("files/pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("what the server has started: %v, want no such process", err)
	}
	var exit *exec.ExitError
	if err := a.cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(a.stderr.String(), "in doubt") {
		t.Errorf("the proxy: %v; %s", err, a.stderr)
	}
	next := s.mcp(lease, "--wait", "3s", "--settle", "forever")
	if got := next.call("write_file", "plan", "x"); !strings.Contains(got, "closed until an operator opens it") {
		t.Errorf("the next call: %s", got)
	}
	s.must(0, "proxy", "open", "mcp/tasks/a", "--note", "looked: nothing was written")
	if got := next.call("write_file", "plan", "x"); got != "written" {
		t.Errorf("when it is open: %s", got)
	}
}

// TestAFrozenProxyLetsNoServerOutliveItsLease: the warden kills the server in
// the middle of a call, before another proxy may write.
func TestAFrozenProxyLetsNoServerOutliveItsLease(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	holding := s.hold("tasks/a", "--ttl", "1h")
	a := s.mcp("@"+holding.next("granted").LeaseFile, "--ttl", ttl)
	if _, err := io.WriteString(a.in, `{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
		`"params":{"name":"hang","arguments":{"path":"pid"}}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(s.read("files/pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.until("the end of what the server has started", func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := a.answer(); !strings.Contains(got, "Refused by croft (unknown)") {
		t.Errorf("the call that was under way: %s", got)
	}
}
