package steward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// The exit codes of a command that say more than that it failed; they are those of sysexits.
const (
	ExitRefused     = 65 // EX_DATAERR: not delivered, and never will be
	ExitUndelivered = 75 // EX_TEMPFAIL: not delivered; try again
)

// Command delivers effects by a program: the body is its standard input, and it finds CROFT_IDEMPOTENCY_KEY, CROFT_ITEM, CROFT_QUEUE, CROFT_EFFECT, CROFT_TOKEN and CROFT_ATTEMPT in its environment. Exit 0 is delivered, ExitUndelivered is tried again, ExitRefused is not; after any other end,
// a signal included, nobody can say.
type Command struct {
	Args []string // the program and its arguments
	Dir  string   // default: the dispatcher's own
	Env  []string // in addition to the dispatcher's own
}

// stopDelay is how long a program may keep its output open after it was told to stop.
const stopDelay = 5 * time.Second

// Deliver runs the program.
func (c Command) Deliver(ctx context.Context, e work.Effect) error {
	if len(c.Args) == 0 {
		return Refused(fmt.Errorf("%w command: it is empty", fence.ErrInvalid))
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.WaitDelay = c.Dir, stopDelay
	cmd.Env = append(append(os.Environ(), c.Env...),
		"CROFT_IDEMPOTENCY_KEY="+e.EffectID.String(), "CROFT_ITEM="+string(e.Item), "CROFT_QUEUE="+e.Queue, "CROFT_EFFECT="+e.Name,
		"CROFT_TOKEN="+strconv.FormatInt(int64(e.Token), 10), "CROFT_ATTEMPT="+strconv.Itoa(e.Attempts))
	cmd.Stdin = bytes.NewReader(e.Body)
	said := &tail{most: 512}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return Undelivered(fmt.Errorf("command %s: %w", c.Args[0], err))
	}
	err := cmd.Wait()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("command %s: %w: %s", c.Args[0], err, strings.TrimSpace(said.text()))
	switch cmd.ProcessState.ExitCode() {
	case ExitUndelivered:
		return Undelivered(err)
	case ExitRefused:
		return Refused(err)
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	most int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(string(t.kept), "?") }

// bare is an error of the HTTP client without the URL, which may hold a password.
func bare(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// escape makes any name fit for a header.
func escape(name string) string { return fence.EscapeKey(name) }
