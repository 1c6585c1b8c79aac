//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
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

// holder is a croft hold, seen by its parent.
type holder struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan event
	stderr *bytes.Buffer
}

// event is a message of croft hold. ID is 0 if it answers no request.
type event struct {
	Event      string  `json:"event"`
	ID         int     `json:"id"`
	Protocol   int     `json:"protocol"`
	PID        int     `json:"pid"`
	Lease      string  `json:"lease"`
	Key        string  `json:"key"`
	Token      int64   `json:"token"`
	Stamp      string  `json:"stamp"`
	Owner      string  `json:"owner"`
	TTL        float64 `json:"ttl"`
	Remaining  float64 `json:"remaining"`
	LeaseFile  string  `json:"lease_file"`
	Checkpoint []byte  `json:"checkpoint"`
	Loss       string  `json:"loss"`
	Message    string  `json:"message"`
	Error      struct {
		Code      string  `json:"code"`
		Message   string  `json:"message"`
		Owner     string  `json:"owner"`
		Remaining float64 `json:"remaining"`
	} `json:"error"`
}

// hold starts a croft hold and reads its greeting.
func (s *station) hold(args ...string) *holder {
	s.t.Helper()
	h := s.holdUnread(args...)
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	h.start()
	go func() {
		defer close(h.events)
		for lines := bufio.NewReader(out); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var e event
			if err := json.Unmarshal(text, &e); err != nil {
				e.Event = fmt.Sprintf("%v: %s", err, text)
			}
			h.events <- e
		}
	}()
	if hello := h.next("hello"); hello.Protocol != 1 || hello.PID == 0 {
		s.t.Fatalf("the greeting is %+v", hello)
	}
	return h
}

// holdUnread makes a croft hold whose output nobody reads yet.
func (s *station) holdUnread(args ...string) *holder {
	s.t.Helper()
	h := &holder{t: s.t, events: make(chan event, 1024), stderr: &bytes.Buffer{}}
	h.cmd = s.command(append([]string{"hold"}, args...)...)
	h.cmd.Stderr = h.stderr
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (h *holder) start() {
	h.t.Helper()
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = h.cmd.Process.Kill() })
}

// say sends a message.
func (h *holder) say(format string, args ...any) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, format+"\n", args...); err != nil {
		h.t.Fatalf("%v; %s", err, h.stderr)
	}
}

// next reads the next message, which must be the named event.
func (h *holder) next(name string) event {
	h.t.Helper()
	select {
	case e, open := <-h.events:
		if !open {
			h.t.Fatalf("the output ended, want %s; %s", name, h.stderr)
		}
		if e.Event != name {
			h.t.Fatalf("the next message is %+v, want %s", e, name)
		}
		return e
	case <-time.After(patience):
		h.t.Fatalf("waited %s for %s in vain; %s", patience, name, h.stderr)
	}
	return event{}
}

// refused reads an error, which must have the code.
func (h *holder) refused(code string) event {
	h.t.Helper()
	e := h.next("error")
	if e.Error.Code != code {
		h.t.Fatalf("the error is %+v, want code %s", e, code)
	}
	return e
}

// exit waits for the end of the process, which must have this exit code.
func (h *holder) exit(want int) {
	h.t.Helper()
	for range h.events {
		// messages after those that the test looked at
	}
	if code := exitCode(h.t, h.cmd, h.stderr); code != want {
		h.t.Errorf("exit code %d, want %d; it printed:\n%s", code, want, h.stderr)
	}
}

// ended is how the newest term of a key ended, or "" if it lasts.
func (s *station) ended(key string) string {
	s.t.Helper()
	c, out := s.croft("show", "--json", key)
	if err := c.Wait(); err != nil {
		s.t.Fatalf("croft show: %v\n%s", err, out)
	}
	var v struct {
		Ended string `json:"ended"`
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		s.t.Fatal(err)
	}
	return v.Ended
}

func TestHoldTellsWhatBecomesOfItsLease(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("job", "--ttl", "1m", "--owner", "ann")
	g := h.next("granted")
	if g.Key != "job" || g.Owner != "ann" || g.TTL != 60 || g.Remaining <= 0 || g.Remaining >= 60 || g.Token != s.show("job").Token {
		t.Fatalf("granted %+v", g)
	}
	if info, err := os.Stat(g.LeaseFile); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lease's file: %v, %v", info, err)
	}
	s.must(0, "report", "by the file", "@"+g.LeaseFile)

	h.say(`{"id": 1, "do": "verify"}`)
	if v := h.next("verified"); v.ID != 1 || v.Lease != "job" || v.Token != g.Token || v.Remaining <= 0 || v.Remaining >= 60 {
		t.Errorf("%+v", v)
	}
	h.say(`{"id": 2, "do": "report", "marker": "page 2", "lease": "job"}`)
	h.next("reported")
	h.say(`{"id": 3, "do": "checkpoint", "checkpoint": "cGFnZSAy"}`)
	h.next("saved")
	h.say(`{"id": 4, "do": "renew", "ttl": 600}`)
	if r := h.next("renewed"); r.ID != 4 || r.TTL != 600 || r.Remaining <= 60 {
		t.Errorf("%+v", r)
	}
	h.say(`{"id": 5, "do": "release"}`)
	if r := h.next("released"); r.ID != 5 || r.Token != g.Token {
		t.Errorf("%+v", r)
	}
	h.exit(0)
	if _, err := os.Stat(filepath.Dir(g.LeaseFile)); !os.IsNotExist(err) {
		t.Errorf("the folder with the lease is still there: %v", err)
	}
	if how := s.ended("job"); how != "released" {
		t.Errorf("the term ended as %q", how)
	}

	next := s.hold("job")
	if g := next.next("granted"); string(g.Checkpoint) != "page 2" {
		t.Errorf("the next holder finds the checkpoint %q", g.Checkpoint)
	}
	next.say(`{"id": 1, "do": "fail"}`)
	next.next("released")
	next.exit(0)
	if how := s.ended("job"); how != "failed" {
		t.Errorf("the term ended as %q", how)
	}
}

func TestHoldExitsLikeTheOtherCommands(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	first := s.hold("job", "--ttl", "1h", "--owner", "ann")
	first.next("granted")

	held := s.hold("job", "--wait", "100ms")
	if e := held.refused("held"); e.Error.Owner != "ann" || e.Error.Remaining <= 0 {
		t.Errorf("%+v", e)
	}
	held.exit(cli.ExitHeld)

	s.must(0, "takeover", "job", "--note", "test", "--owner", "eve")
	if lost := first.next("lost"); lost.Loss != "taken_over" || lost.Owner != "eve" || lost.Key != "job" || lost.Message == "" {
		t.Errorf("%+v", lost)
	}
	first.exit(cli.ExitNotOwned)

	bad := s.hold("a//b")
	bad.refused("invalid")
	bad.exit(2)

	away := s.hold("job", "--store", "redis://127.0.0.1:1/0", "--timeout", "100ms")
	away.refused("unknown")
	away.exit(cli.ExitUnknown)

	s.must(2, "hold", "job", "--multi")
	s.must(2, "hold", "--multi", "--ttl", "5s")
	s.must(2, "hold")
}

func TestAMessageThatIsWrongEndsNothingElse(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.must(0, "acquire", "taken", "--owner", "ann", "--ttl", "1h", "--out", "lease")
	h := s.hold("--multi")
	h.say(`{"id": 1, "do": "acquire", "lease": "a", "key": "k/a", "ttl": 3600}`)
	h.next("granted")
	for _, c := range []struct {
		id            int // that the answer has
		message, code string
	}{
		{2, `{"id": 2, "do": "sing", "lease": "a"}`, "invalid"},
		{3, `{"id": 3, "do": "verify", "lease": "a", "loud": true}`, "invalid"},
		{4, `{"id": 4, "Do": "verify", "lease": "a"}`, "invalid"},
		{0, `{"do": "verify", "lease": "a"}`, "invalid"},
		{0, `{"id": 1.5, "do": "verify", "lease": "a"}`, "invalid"},
		{5, `{"id": 5, "do": "verify", "lease": "b"}`, "not_owned"},
		{6, `{"id": 6, "do": "verify"}`, "not_owned"},
		{7, `{"id": 7, "do": "acquire", "lease": "a", "key": "k/b"}`, "invalid"},
		{8, `{"id": 8, "do": "acquire", "key": "k/b"}`, "invalid"},
		{9, `{"id": 9, "do": "acquire", "lease": "b", "key": "k//b"}`, "invalid"},
		{10, `{"id": 10, "do": "acquire", "lease": "b", "key": "k/b", "ttl": 0}`, "invalid"},
		{11, `{"id": 11, "do": "acquire", "lease": "b", "key": "k/b", "ttl": "1m"}`, "invalid"},
		{12, `{"id": 12, "do": "acquire", "lease": "b", "key": "k/b", "ttl": 1e300}`, "invalid"},
		{13, `{"id": 13, "do": "acquire", "lease": "b", "key": "k/b", "every": 60, "once": true}`, "invalid"},
		{14, `{"id": 14, "do": "acquire", "lease": "b", "key": "k/b", "guards": "out.txt"}`, "invalid"},
		{15, `{"id": 15, "do": "acquire", "lease": "b", "key": "taken"}`, "held"},
		{16, `{"id": 16, "do": "report", "lease": "a"}`, "invalid"},
		{17, `{"id": 17, "do": "report", "lease": "a", "marker": ""}`, "invalid"},
		{18, `{"id": 18, "do": "checkpoint", "lease": "a", "checkpoint": "?"}`, "invalid"},
		{19, `{"id": 19, "do": "renew", "lease": "a", "ttl": -1}`, "invalid"},
		{20, `{"id": 20, "do": "report", "lease": "a", "marker": "` + strings.Repeat("x", 1025) + `"}`, "invalid"},
		{21, `{"id": 21, "do": "checkpoint", "lease": "a", "checkpoint": "` + strings.Repeat("eHh4", 342) + `"}`, "invalid"},
		{24, `{"id": 24, "do": "acquire", "lease": "b", "key": "k/b", "max_hold": null}`, "invalid"},
		{0, `{"id": null, "do": "verify", "lease": "a"}`, "invalid"},
		{22, `{"id": 22, "do": "verify", "lease": "` + strings.Repeat("\u2028", 20000) + `"}`, "invalid"},
	} {
		h.say("%s", c.message)
		e := h.next("error")
		if e.Error.Code != c.code || e.Error.Message == "" || e.ID != c.id || len(e.Lease) > 512 {
			t.Errorf("%s is answered with %+v, want code %s", c.message, e, c.code)
		}
	}
	h.say(`{"id": 23, "do": "verify", "lease": "a"}`)
	h.next("verified")
	_ = h.in.Close()
	h.exit(0)
}

// TestBrokenInputGivesAllLeasesBack: after it nobody knows what the parent
// means.
func TestBrokenInputGivesAllLeasesBack(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"torn":       `{"id": 2, "do": "verify", "lea`,
		"overlong":   `{"id": 2, "do": "` + strings.Repeat("x", 64<<10) + "\"}\n",
		"no JSON":    "verify\n",
		"no object":  "[1]\n",
		"null":       "null\n",
		"not UTF-8":  "{\"id\": 2, \"do\": \"verify\", \"lease\": \"\xff\"}\n",
		"two at one": `{"id": 2, "do": "verify"}{"id": 3, "do": "verify"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			h := s.hold("job", "--ttl", "1h")
			h.next("granted")
			if _, err := io.WriteString(h.in, text); err != nil {
				t.Fatal(err)
			}
			_ = h.in.Close()
			h.refused("invalid")
			h.exit(2)
			if how := s.ended("job"); how != "failed" {
				t.Errorf("the term ended as %q", how)
			}
		})
	}
}

// TestARequestOfAParentThatLeftCounts: it need not wait for the answer.
func TestARequestOfAParentThatLeftCounts(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("job", "--ttl", "1h", "--every", "24h")
	h.next("granted")
	_ = h.in.Close()
	h.exit(0)
	if how := s.ended("job"); how != "failed" {
		t.Errorf("the term of a parent that left ended as %q", how)
	}
	h = s.hold("job", "--ttl", "1h", "--every", "24h")
	h.next("granted")
	h.say(`{"id": 1, "do": "checkpoint", "checkpoint": "eA=="}` + "\n" + `{"id": 2, "do": "release"}`)
	_ = h.in.Close()
	h.next("saved")
	h.next("released")
	h.exit(0)
	h = s.hold("job", "--every", "24h")
	h.refused("held")
	h.exit(cli.ExitHeld)
}

func TestAnAcquireCanBeGivenUp(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.must(0, "acquire", "job", "--ttl", "1h", "--out", "lease")
	h := s.hold("--multi")
	h.say(`{"id": 1, "do": "acquire", "lease": "a", "key": "job", "wait": "forever"}`)
	h.say(`{"id": 2, "do": "verify", "lease": "a"}`)
	h.refused("not_owned")
	h.say(`{"id": 3, "do": "fail", "lease": "a"}`)
	if e := h.refused("cancelled"); e.ID != 1 {
		t.Errorf("%+v", e)
	}
	if e := h.next("released"); e.ID != 3 {
		t.Errorf("%+v", e)
	}
	_ = h.in.Close()
	h.exit(0)

	waiting := s.hold("job", "--wait", "forever")
	_ = waiting.in.Close()
	waiting.exit(cli.ExitInterrupted)
	interrupted := s.hold("job", "--wait", "forever")
	if err := interrupted.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	interrupted.exit(cli.ExitInterrupted)
	if rec := s.show("job"); rec.State != "held" {
		t.Errorf("the record says %+v", rec)
	}
}

// TestASignalGivesLeasesBack: HUP comes when a terminal closes.
func TestASignalGivesLeasesBack(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) { // here, and so in croft
			continue
		}
		h := s.hold("job", "--ttl", "1h")
		g := h.next("granted")
		if err := h.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		h.next("released")
		h.exit(cli.ExitInterrupted)
		if how := s.ended("job"); how != "failed" {
			t.Errorf("after %v the term ended as %q", sig, how)
		}
		if _, err := os.Stat(filepath.Dir(g.LeaseFile)); !os.IsNotExist(err) {
			t.Errorf("after %v the folder with the lease is still there: %v", sig, err)
		}
	}
}

// TestAKilledParentGivesItsLeaseBackAtOnce, also if a child of the parent has
// inherited the pipe. The TTL is an hour, so nothing lapses here.
func TestAKilledParentGivesItsLeaseBackAtOnce(t *testing.T) {
	t.Parallel()
	for name, child := range map[string]string{"alone": "", "with a child": "sleep 1000 & echo $! >child\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			parent := s.script("parent", "mkfifo in\ncroft hold job --ttl 1h <in >out &\nexec 3>in\n"+child+"while :; do sleep 0.1; done\n")
			c := exec.Command(parent)
			c.Dir = s.dir
			c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10", "PATH="+s.path, "CROFT_STORE="+filepath.Join(s.dir, "store"))
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			s.until("the grant", func() bool {
				text, _ := os.ReadFile(filepath.Join(s.dir, "out"))
				return bytes.Contains(text, []byte(`"granted"`))
			})
			if child != "" {
				pid, err := strconv.Atoi(s.read("child"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			s.until("the end of the term", func() bool { return s.ended("job") == "failed" })
		})
	}
}

// TestAStoppedHolderLosesItsLeases: when it wakes up, it says so, and gives no
// late yes to questions that waited for it.
func TestAStoppedHolderLosesItsLeases(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("--multi")
	for i, name := range []string{"a", "b"} {
		h.say(`{"id": %d, "do": "acquire", "lease": %q, "key": "k/%s", "ttl": 6}`, i+1, name, name)
		h.next("granted")
	}
	stopAll(t, []int{h.cmd.Process.Pid})
	s.until("the stop", func() bool { return stopped(h.cmd.Process.Pid) })
	h.say(`{"id": 3, "do": "verify", "lease": "a"}`)
	h.say(`{"id": 4, "do": "verify", "lease": "b"}`)
	s.must(0, "acquire", "k/a", "--owner", "eve", "--wait", "1m", "--ttl", "1h", "--out", "lease")
	s.until("the end of the other term", func() bool { return time.Now().After(s.show("k/b").Deadline) })
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// A stop in the middle of a renewal leaves that renewal without an answer.
	losses := []string{"expired", "superseded", "unreachable"}
	lost, denied := map[string]bool{}, map[int]bool{}
	for len(lost) < 2 || len(denied) < 2 {
		switch e := <-h.events; {
		case e.Event == "lost" && slices.Contains(losses, e.Loss):
			lost[e.Lease] = true
		case e.Event == "error" && e.Error.Code == "not_owned":
			denied[e.ID] = true
		default:
			t.Fatalf("it says %+v", e)
		}
	}
	_ = h.in.Close()
	h.exit(0)
	if rec := s.show("k/a"); rec.Owner != "eve" || rec.State != "held" {
		t.Errorf("the record says %+v", rec)
	}
}

// stopped reports whether all threads of a process stand still.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err == nil && !bytes.HasPrefix(text[bytes.LastIndexByte(text, ')')+1:], []byte(" T")) {
			return false
		}
	}
	return len(threads) > 0
}

func TestOneProcessHoldsAHundredLeases(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("--multi")
	const n = 100
	for i := range n {
		h.say(`{"id": %d, "do": "acquire", "lease": "%d", "key": "many/%d", "ttl": 600}`, i+1, i, i)
	}
	granted := map[string]bool{}
	for range n {
		granted[h.next("granted").Key] = true
	}
	for i := range n {
		h.say(`{"id": %d, "do": "verify", "lease": "%d"}`, n+i+1, i)
	}
	for i := range n {
		if e := h.next("verified"); e.ID != n+i+1 || e.Remaining <= 0 {
			t.Fatalf("%+v", e)
		}
	}
	_ = h.in.Close()
	released := 0
	for e := range h.events {
		if e.Event == "released" {
			released++
		}
	}
	h.exit(0)
	if len(granted) != n || released != n {
		t.Errorf("%d leases were granted and %d given back, want %d", len(granted), released, n)
	}
}

// TestAParentThatNeverReadsLosesItsLease: the output does not fill up without
// end, and nothing waits for its reader.
func TestAParentThatNeverReadsLosesItsLease(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.holdUnread("job", "--ttl", "1h")
	unread, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	h.cmd.Stdout = full
	h.start()
	_ = full.Close()
	go func() {
		for {
			if _, err := io.WriteString(h.in, `{"id": 1, "do": "verify"}`+"\n"); err != nil {
				return
			}
		}
	}()
	close(h.events)
	h.exit(cli.ExitFailed)
	if how := s.ended("job"); how != "failed" {
		t.Errorf("the term ended as %q", how)
	}
}

// TestAParentThatReportsNothingLosesItsLease, although croft could renew it.
func TestAParentThatReportsNothingLosesItsLease(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("job", "--ttl", ttl, "--stall-after", "1s")
	h.next("granted")
	if lost := h.next("lost"); lost.Loss != "stalled" {
		t.Errorf("%+v", lost)
	}
	h.exit(cli.ExitNotOwned)
}

// TestALossIsToldWhileTheStoreHangs, also if a request waits for the store. The
// release behind that request has not happened.
func TestALossIsToldWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	redis := testenv.RedisAlone(t)
	h := s.hold("--multi", "--store", redis.URL(), "--timeout", "1h")
	h.say(`{"id": 1, "do": "acquire", "lease": "a", "key": "job", "ttl": 6}`)
	h.next("granted")
	redis.Pause(t)
	h.say(`{"id": 2, "do": "report", "lease": "a", "marker": "page 2"}`)
	h.say(`{"id": 3, "do": "release", "lease": "a"}`)
	if e := h.refused("not_owned"); e.ID != 2 {
		t.Errorf("%+v", e)
	}
	if lost := h.next("lost"); lost.Loss != "unreachable" && lost.Loss != "expired" {
		t.Errorf("%+v", lost)
	}
	if e := h.refused("not_owned"); e.ID != 3 {
		t.Errorf("%+v", e)
	}
	redis.Resume()
	_ = h.in.Close()
	h.exit(0)
}

// TestReleaseHasRoomBehindRequestsThatWait for the store.
func TestReleaseHasRoomBehindRequestsThatWait(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.must(0, "acquire", "job", "--ttl", "1h", "--out", "lease")
	h := s.hold("--multi")
	h.say(`{"id": 1, "do": "acquire", "lease": "a", "key": "job", "wait": "forever"}`)
	for i := range 64 {
		h.say(`{"id": %d, "do": "report", "lease": "a", "marker": "x"}`, i+2)
	}
	h.say(`{"id": 100, "do": "report", "lease": "a", "marker": "x"}`)
	if e := h.refused("invalid"); e.ID != 100 {
		t.Errorf("%+v", e)
	}
	h.say(`{"id": 101, "do": "release", "lease": "a"}`)
	if e := h.refused("cancelled"); e.ID != 1 {
		t.Errorf("%+v", e)
	}
	for range 64 {
		h.refused("not_owned")
	}
	if e := h.next("released"); e.ID != 101 {
		t.Errorf("%+v", e)
	}
	_ = h.in.Close()
	h.exit(0)
}

// TestManyLeasesAreGivenBackTogether: a store that needs more than the time of
// one release for all of them gets it.
func TestManyLeasesAreGivenBackTogether(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	redis := testenv.RedisAlone(t)
	h := s.hold("--multi", "--store", redis.URL())
	const n = 500
	for i := range n {
		h.say(`{"id": %d, "do": "acquire", "lease": "%d", "key": "many/%d", "ttl": 3600}`, i+1, i, i)
	}
	for range n {
		h.next("granted")
	}
	redis.Pause(t)
	_ = h.in.Close()
	time.Sleep(3 * time.Second) // the store is slow for longer than one release may take
	redis.Resume()
	for range n {
		h.next("released")
	}
	h.exit(0)
}

// TestLeasesGoBackBeforeCroftComplains: its standard error may be a pipe that
// nobody reads.
func TestLeasesGoBackBeforeCroftComplains(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.holdUnread("job", "--ttl", "1h")
	read, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	fd := int(full.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	h.cmd.Stderr = full
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	_ = full.Close()
	lines := bufio.NewReader(out)
	for range 2 { // hello and granted
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	_ = out.Close()
	h.say(`{"id": 1, "do": "verify"}`)
	s.until("the end of the term", func() bool { return s.ended("job") == "failed" })
}

// TestALostLeaseGoesBackOnceItsWorkHasStopped, if the store still keeps the key
// from others. The TTL is an hour, so nothing lapses here.
func TestALostLeaseGoesBackOnceItsWorkHasStopped(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	h := s.hold("--multi")
	for i, name := range []string{"a", "b", "c"} {
		h.say(`{"id": %d, "do": "acquire", "lease": %q, "key": "k/%s", "ttl": 3600, "max_hold": 1}`, i+1, name, name)
		h.next("granted")
		if lost := h.next("lost"); lost.Loss != "held_too_long" || lost.Lease != name {
			t.Errorf("%+v", lost)
		}
	}
	if rec := s.show("k/a"); rec.State != "held" {
		t.Errorf("the parent may still work, and the record says %+v", rec)
	}
	h.say(`{"id": 4, "do": "report", "lease": "a", "marker": "stopping"}`)
	h.refused("not_owned")
	h.say(`{"id": 5, "do": "fail", "lease": "a"}`)
	if e := h.next("released"); e.ID != 5 {
		t.Errorf("%+v", e)
	}
	h.say(`{"id": 6, "do": "release", "lease": "b"}`)
	if e := h.refused("not_owned"); e.ID != 6 {
		t.Errorf("%+v", e)
	}
	_ = h.in.Close()
	h.exit(0)

	single := s.hold("k/d", "--ttl", "1h", "--max-hold", "1s")
	single.next("granted")
	single.next("lost")
	_ = single.in.Close()
	single.exit(cli.ExitNotOwned)
	for _, key := range []string{"k/a", "k/b", "k/c", "k/d"} {
		if how := s.ended(key); how != "failed" {
			t.Errorf("the term of %s ended as %q", key, how)
		}
	}
}
