package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

var chaosFor = flag.Duration("chain.chaos", 10*time.Second, "how long writers are killed and frozen on two mounts")

const (
	chaosVariable = "CROFT_TEST_CHAIN_CHAOS"
	chaosWriters  = 8
)

// chaosOrder is what a writer process is told. In the write after some that it
// may finish, it freezes and kills itself before the steps of these numbers.
type chaosOrder struct {
	Path             string
	Writer, Finish   int
	FreezeAt, KillAt int
}

// chaosSteps is more than a write has steps if nobody is in its way.
const chaosSteps = 100

// TestChainChaosWriter is no test: it is a writer process of TestChainChaos.
func TestChainChaosWriter(t *testing.T) {
	text := os.Getenv(chaosVariable)
	if text == "" {
		return
	}
	var order chaosOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		t.Fatal(err)
	}
	f := guardOpen(t, order.Path)
	step, writes := 0, 0
	f.fs = &fsys.Faulty{FS: fsys.OS{}, Before: func(fsys.Step) error {
		if writes < order.Finish {
			return nil
		}
		switch step++; step {
		case order.FreezeAt:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case order.KillAt:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}}
	for ; ; writes++ {
		token := fence.Token(time.Now().UnixMicro()/chaosWriters*chaosWriters + int64(order.Writer))
		begin := guardNow()
		_, err := f.Write(t.Context(), guardStamp(token), bytes.NewReader(chaosContent(token)))
		switch {
		case err == nil:
			testenv.Say("wrote", token, begin, guardNow())
		case errors.Is(err, fence.ErrStale), errors.Is(err, store.ErrUnknown), errors.Is(err, guard.ErrBusy):
		default:
			testenv.Say("failed", err)
		}
	}
}

func chaosContent(token fence.Token) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "token %d\n", token), 2000)
}

// chaosToken is the token of a content, which must be whole.
func chaosToken(content []byte) (token fence.Token, err error) {
	if _, err := fmt.Sscanf(string(content[:min(len(content), 40)]), "token %d\n", &token); err != nil {
		return 0, fmt.Errorf("content %.40q: %w", content, err)
	}
	if !bytes.Equal(content, chaosContent(token)) {
		return 0, fmt.Errorf("a part: %d bytes that begin with %.40q", len(content), content)
	}
	return token, nil
}

// chaos is one run, with the observations of its readers and writers.
type chaos struct {
	t   *testing.T
	end time.Time

	mu     sync.Mutex
	runs   int
	writes int // admitted
	seen   []guardtest.Event
}

func (c *chaos) add(kind guardtest.Kind, token fence.Token, begin, end int64, who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == guardtest.Write {
		c.writes++
	}
	c.seen = append(c.seen, guardtest.Event{Kind: kind, Token: token, Begin: begin, End: end, Who: who})
}

// over reports whether time is up. On a slow machine it waits for some writes.
func (c *chaos) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().After(c.end) && (c.writes >= chaosWriters || time.Now().After(c.end.Add(testenv.Patience)))
}

// writer runs one writer process after another. Each kills itself one step
// later than the one before, and is frozen on its way there.
func (c *chaos) writer(path string, number int) {
	for run := 0; !c.over(); run++ {
		c.mu.Lock()
		c.runs++
		at := 1 + c.runs%chaosSteps
		c.mu.Unlock()
		order, err := json.Marshal(chaosOrder{
			Path: path, Writer: number, Finish: run % 3, KillAt: at, FreezeAt: at * (run % 5) / 5,
		})
		if err != nil {
			c.t.Error(err)
			return
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestChainChaosWriter$")
		cmd.Env = append(os.Environ(), chaosVariable+"="+string(order))
		child := testenv.StartChild(c.t, cmd)
		gone := make(chan struct{})
		go func() {
			for { // frozen, and frozen no longer
				select {
				case <-gone:
					return
				case <-time.After(200 * time.Millisecond):
					_ = cmd.Process.Signal(syscall.SIGCONT)
					if c.over() {
						_ = cmd.Process.Kill()
					}
				}
			}
		}()
		for said := child.Hear(); said != ""; said = child.Hear() {
			var token, begin, end int64
			if _, err := fmt.Sscanf(said, "wrote %d %d %d", &token, &begin, &end); err != nil {
				c.t.Errorf("writer %d: %s", number, said)
				continue
			}
			c.add(guardtest.Write, fence.Token(token), begin, end, fmt.Sprint("writer ", number))
		}
		close(gone)
	}
}

// reader reads the committed content, and the plain copy.
func (c *chaos) reader(path string) {
	f := guardOpen(c.t, path)
	for !c.over() {
		c.read(f)
		// It may vanish for a moment, on SSHFS.
		plain, err := os.ReadFile(path)
		if err == nil {
			_, err = chaosToken(plain)
		}
		if err != nil && !vanished(err) {
			c.t.Errorf("a reader of the plain copy: %v", err)
		}
	}
}

func (c *chaos) read(f *File) fence.Token {
	begin := guardNow()
	content, written, err := chainContents(context.WithoutCancel(c.t.Context()), f)
	if err != nil && !vanished(err) {
		c.t.Errorf("reading what was committed: %v", err)
	}
	if err != nil || !written {
		return 0
	}
	token, err := chaosToken(content)
	if err != nil {
		c.t.Errorf("what was committed: %v", err)
		return 0
	}
	c.add(guardtest.Read, token, begin, guardNow(), "a reader")
	return token
}

// TestChainChaos: eight writers on two mounts of one folder, killed and frozen
// at every step. The committed content is never older than the newest admitted
// stamp. Readers of the plain copy never see a part, and the copy converges.
func TestChainChaos(t *testing.T) {
	served, mounts := testenv.Share(t, 2)
	const name = "today.json"
	c := &chaos{t: t, end: time.Now().Add(*chaosFor)}
	var all sync.WaitGroup
	for i := range chaosWriters {
		all.Go(func() { c.writer(filepath.Join(mounts[i%2], name), i) })
	}
	for _, mount := range mounts {
		all.Go(func() { c.reader(filepath.Join(mount, name)) })
	}
	all.Wait()
	var last fence.Token
	for _, mount := range mounts {
		f := guardOpen(t, filepath.Join(mount, name))
		mark, err := f.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last = c.read(f); last != mark.Token {
			t.Errorf("the mark is of %d, what was committed of %d", mark.Token, last)
		}
	}
	for _, broken := range guardtest.Law3(c.seen) {
		t.Errorf("law 3 is broken: %s", broken)
	}
	plain, err := os.ReadFile(filepath.Join(served, name))
	if err != nil || !bytes.Equal(plain, chaosContent(last)) {
		t.Errorf("the copy did not converge: %.40q, %v; committed is %d", plain, err, last)
	}
	t.Logf("%d writer processes were killed, %d writes admitted, %d reads", c.runs, c.writes, len(c.seen)-c.writes)
	if c.writes == 0 {
		t.Error("nothing was written")
	}
}
