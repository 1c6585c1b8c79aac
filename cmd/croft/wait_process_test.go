//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// TestAWaitOnATerminalSaysForWhomItWaits: the line names the holder, and is
// gone when the wait is over.
func TestAWaitOnATerminalSaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	release := []string{"release", "@lease"}
	for name, test := range map[string]struct {
		wait  []string
		shown string
		end   []string // the wait
	}{
		"run":        {[]string{"run", "job", "--wait", "forever", "--", "true"}, "job, held by ada@one: ", release},
		"acquire":    {[]string{"acquire", "job", "--wait", "1d"}, "job, held by ada@one: ", release},
		"work claim": {[]string{"work", "claim", "jobs", "--wait", "1d"}, "jobs: ", []string{"work", "add", "jobs", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			args, end := test.wait, test.end
			if args[0] == "work" {
				ledger := "--store=sqlite://" + filepath.Join(s.dir, "work.db")
				args, end = slices.Concat(args, []string{ledger}), slices.Concat(end, []string{ledger})
			}
			s.must(0, "acquire", "job", "--owner", "ada@one", "--ttl", "1h", "--out", "lease")
			c, screen := s.onTerminal(args...)
			shows(t, screen, "waiting for "+test.shown)
			s.must(0, end...)
			last := ""
			for buf := make([]byte, 4096); ; { // it ends with the last process on the terminal
				n, err := screen.Read(buf)
				last += string(buf[:n])
				if err != nil {
					break
				}
			}
			if err := c.Wait(); err != nil {
				t.Fatalf("%v: %s", err, last)
			}
			_, after, removed := strings.Cut(last[strings.LastIndex(last, "waiting for ")+1:], " \r")
			if !removed || after != "" && (name != "work claim" || !strings.HasPrefix(after, "croft: ")) {
				t.Errorf("the last of it is %q, want the line removed", last)
			}
		})
	}
}

// TestATerminalShowsThatTheStoreDoesNotAnswer: and why croft asks again. One
// store never answers, and another refuses connections.
func TestATerminalShowsThatTheStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, test := range map[string]struct {
		store string
		args  []string
		shown []string
	}{
		"opening": {
			"postgres://ann@" + silent.Addr().String() + "/db",
			[]string{"ls", "--timeout", "1h"},
			[]string{"waiting for the store's answer: "},
		},
		"one try": {
			"redis://" + silent.Addr().String() + "/0",
			[]string{"acquire", "job", "--timeout", "1h"},
			[]string{"waiting for the store's answer: "},
		},
		"a wait": {
			"redis://ann:hunter22@127.0.0.1:1/0",
			[]string{"run", "job", "--wait", "1h", "--", "true"},
			[]string{"no answer about job yet: redis: dial tcp", "waiting for job: ", "; no answer from the store for "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStation(t)
			_, screen := s.onTerminal(append([]string{"--store", test.store}, test.args...)...)
			for _, text := range test.shown {
				if all := shows(t, screen, text); strings.Contains(all, "hunter22") {
					t.Errorf("the terminal shows the password: %q", all)
				}
			}
		})
	}
}

// onTerminal starts a croft whose standard error is a terminal.
func (s *station) onTerminal(args ...string) (c *exec.Cmd, screen *os.File) {
	s.t.Helper()
	screen, terminal := openTerminal(s.t)
	c = s.command(args...)
	c.Stderr, c.Env = terminal, append(c.Env, "TERM=xterm")
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	_ = terminal.Close()
	return c, screen
}

// shows reads the screen until a text appears, and returns all that it read.
func shows(t *testing.T, screen *os.File, text string) string {
	t.Helper()
	var shown strings.Builder
	for buf := make([]byte, 4096); !strings.Contains(shown.String(), text); {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("the screen shows %q, want %q: %v", shown.String(), text, err)
		}
		shown.Write(buf[:n])
	}
	return shown.String()
}

// openTerminal makes a pseudo-terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	var number, locked int32
	ioctl(t, screen, syscall.TIOCSPTLCK, &locked)
	ioctl(t, screen, syscall.TIOCGPTN, &number)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}

func ioctl(t *testing.T, f *os.File, what uintptr, value *int32) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), what, uintptr(unsafe.Pointer(value))); errno != 0 {
		t.Fatal(errno)
	}
}
