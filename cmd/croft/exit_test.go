package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

const (
	someGrant  = fence.Grant("0123456789abcdef0123456789abcdef")
	otherGrant = fence.Grant("ffffffffffffffffffffffffffffffff")
)

func TestEveryErrorHasItsExitCodeAndName(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rec := tenure.Record{Key: "k", Token: 7, Grant: someGrant, Owner: "ada@one", Instance: "i", State: tenure.Held, Deadline: now.Add(time.Minute)}
	stamp := fence.Stamp{Key: "k", Token: 5, Grant: otherGrant}
	mark := fence.Mark{Key: "k", Token: 7, Grant: someGrant}
	held := &tenure.HeldError{Record: rec, Why: tenure.WhyHeld, Until: rec.Deadline, Now: now}
	stale := &fence.StaleError{Presented: stamp, Newest: mark, PresentedOwner: "old@x", NewestOwner: "new@y"}
	refused := func(err error) error { return &fence.RefusedError{Err: err, Presented: stamp, Mark: mark} }

	cases := []struct {
		name  string
		err   error
		exit  int
		code  string
		facts string
	}{
		{"held", held, 11, "held", "key token owner instance why until remaining"},
		{"not owned", &tenure.NotOwnedError{Record: rec, Why: tenure.WhySuperseded, Now: now}, 12, "not_owned", "key token owner instance why"},
		{"not owned, nothing remembered", &tenure.NotOwnedError{Why: tenure.WhyUnknown}, 12, "not_owned", "why"},
		{"lost", &croft.LostError{Key: "k", Token: 7, Loss: croft.Stalled}, 12, "not_owned", "key token why"},
		{"lost because unreachable", &croft.LostError{Key: "k", Loss: croft.Unreachable, Err: store.Unknown(errors.New("x"))}, 12, "not_owned", "key token why"},
		{"stale", stale, 13, "stale", "key token newest owner newest_owner"},
		{"stale at the grant", &croft.GuardError{Target: "f", Err: stale}, 13, "stale", "target key token newest owner newest_owner"},
		{"collision", refused(fence.ErrCollision), 13, "collision", "key token seq mark"},
		{"wrong key", refused(fence.ErrWrongKey), 13, "wrong_key", "key token seq mark"},
		{"repeated", refused(fence.ErrRepeated), 13, "repeated", "key token seq mark"},
		{"not in the ledger", &work.NotFoundError{What: "item x"}, 1, "not_found", ""},
		{"not in this state", &work.StateError{What: "cancel", Of: "item x", State: "done", Why: "it is over"}, 1, "state", "of state"},
		{"a fence that is not up", guard.Unfenced([]guard.Raised{{Target: "out", Err: errors.New("gone")}}), 1, "unfenced", ""},
		{"a fence that is not up, by a stale stamp", guard.Unfenced([]guard.Raised{{Target: "out", Err: stale}}), 1, "unfenced", "key token newest owner newest_owner"},
		{"a guard that nobody allowed", &work.GuardError{Target: "s3://b/k", Err: guard.ErrNotAllowed}, 1, "not_allowed", "target"},
		{"the same key for other content", &work.ConflictError{Queue: "q", Unique: "u", ID: "x"}, 1, "conflict", "id queue unique"},
		{"too large", &work.LimitError{What: "payload", Size: 2, Most: 1}, 2, "invalid", "size most"},
		{"an item lost", &work.LostError{Item: "x", Loss: work.Superseded}, 12, "not_owned", ""},
		{"nothing ready", cli.ErrNothingReady, 11, "empty", ""},
		{"unknown", store.Unknown(context.DeadlineExceeded), 14, "unknown", ""},
		{"a damaged record", store.Unknown(fmt.Errorf("file x: %w", fence.ErrInvalid)), 14, "unknown", ""},
		{"a busy guard", fmt.Errorf("%w: pid 7", guard.ErrBusy), 14, "unknown", ""},
		{"a full disk", &fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}, 14, "unknown", ""},
		{"invalid", fence.CheckKey(""), 2, "invalid", ""},
		{"usage", &cli.UsageError{Message: "unknown flag"}, 2, "invalid", ""},
		{"interrupted", fmt.Errorf("waiting: %w", context.Canceled), 130, "unknown", ""},
		{"interrupted before it was known", store.Unknown(context.Canceled), 130, "unknown", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out, err bytes.Buffer
			a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &err}}
			if got := a.Fail(fmt.Errorf("acquire: %w", c.err)); got != c.exit {
				t.Errorf("exit code %d, want %d", got, c.exit)
			}
			if out.Len() != 0 || !strings.HasPrefix(err.String(), "croft: ") {
				t.Errorf("printed %q and, as an error, %q", out.String(), err.String())
			}

			err.Reset()
			a.JSON = true
			if got := a.Fail(c.err); got != c.exit {
				t.Errorf("exit code %d with --json, want %d", got, c.exit)
			}
			var got struct{ Error json.RawMessage }
			if e := json.Unmarshal(out.Bytes(), &got); e != nil || err.Len() != 0 {
				t.Fatalf("printed %q (%v) and, as an error, %q", out.String(), e, err.String())
			}
			names, e := namesOf(string(got.Error))
			want := strings.TrimSpace("code message " + c.facts)
			if strings.Join(names, " ") != want || e != nil {
				t.Errorf("names %q, want %q", names, want)
			}
			if !strings.HasPrefix(string(got.Error), `{"code":"`+c.code+`",`) {
				t.Errorf("%s, want code %s", got.Error, c.code)
			}
		})
	}
}

func TestAnExitCodeThatWasExplainedIsPassedOnInSilence(t *testing.T) {
	var out, err bytes.Buffer
	a := &app{&cli.App{Stdout: &cli.Sink{W: &out}, Stderr: &err, JSON: true}}
	if got := a.Fail(cli.ExitError(7)); got != 7 || out.Len()+err.Len() != 0 {
		t.Errorf("exit code %d, printed %q %q; want 7 and nothing", got, out.String(), err.String())
	}
}

// broken is a standard output that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestLostOutputIsAnErrorUnlessItsReaderLeft(t *testing.T) {
	for _, c := range []struct {
		err  error
		exit int
		says string
	}{
		{&fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}, 1, "could not be written"},
		{&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, 0, ""},
	} {
		var stderr bytes.Buffer
		got := Main([]string{"version"}, strings.NewReader(""), broken{c.err}, &stderr)
		if got != c.exit || !strings.Contains(stderr.String(), c.says) || (c.says == "" && stderr.Len() != 0) {
			t.Errorf("%v: exit code %d, printed %q; want %d and %q", c.err, got, stderr.String(), c.exit, c.says)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsGivenUp(t *testing.T) {
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	store.Register("hung", func(context.Context, *url.URL) (store.Store, error) {
		<-hung
		return nil, errors.New("too late")
	})
	var stdout, stderr strings.Builder
	if code := Main([]string{"ls", "--store", "hung://ada:hunter22@host/x", "--timeout", "10ms"}, strings.NewReader(""), &stdout, &stderr); code != cli.ExitUnknown {
		t.Errorf("exit code %d, want %d", code, cli.ExitUnknown)
	}
	if got := stderr.String(); !strings.Contains(got, "hung://ada:xxxxx@host/x cannot be opened") {
		t.Errorf("it says %q", got)
	}
}
