package workcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/work"
)

// console prints the output of a worker and its commands on standard error, in
// whole lines. While a queue is being emptied, a terminal has a line of
// progress below them. mu keeps the lines whole and guards shown.
type console struct {
	app   *app
	width int // 0 if no progress is shown

	mu    sync.Mutex
	shown string
}

func newConsole(a *app, o workRunOptions) *console {
	c := &console{app: a}
	if width, isTerminal := cli.TerminalWidth(a.Stderr); isTerminal && o.untilEmpty && !a.JSON &&
		os.Getenv("TERM") != "dumb" {
		c.width = width
	}
	return c
}

// quiet reports whether progress is shown. Then single completions are not
// printed.
func (c *console) quiet() bool { return c.width > 0 }

// say prints a line.
func (c *console) say(text string) { c.raw([]byte(cli.Lines(text) + "\n")) }

// raw prints text that ends with a newline.
func (c *console) raw(text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := c.shown
	c.draw("")
	_, _ = c.app.Stderr.Write(text)
	c.draw(shown)
}

// print prints one JSON object.
func (c *console) print(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.app.Print(v)
}

// draw replaces the line of progress. The caller holds mu.
func (c *console) draw(text string) {
	if c.width == 0 || (text == "" && c.shown == "") {
		return
	}
	text = cli.Cut(text, c.width-1)
	fmt.Fprintf(c.app.Stderr, "\r%s%s\r", text, strings.Repeat(" ", max(0, cli.Width(c.shown)-cli.Width(text))))
	c.shown = text
}

// finish removes the line of progress.
func (c *console) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draw("")
}

// copy prints the output of a command in whole lines, so that several commands
// do not mix.
func (c *console) copy(r io.Reader, prefix string) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		text, err := in.ReadSlice('\n')
		if len(text) > 0 {
			if text[len(text)-1] != '\n' {
				text = append(append([]byte(nil), text...), '\n')
			}
			c.raw(append([]byte(prefix), text...))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// drainEvery is how often the console asks the ledger how much is left.
const drainEvery = time.Second

// watch shows how much of the queue is left, until stop is called.
func (c *console) watch(ctx context.Context, l work.Ledger, w *queueWorker) (stop func()) {
	if c.width == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		began := time.Now()
		var before int64 = -1
		for {
			if stats, err := l.Stats(ctx, w.queue); err == nil && len(stats) == 1 {
				s := stats[0]
				finished := s.Done + s.Dead + s.Cancelled
				if before < 0 {
					before = finished
				}
				w.mu.Lock()
				failed := w.failed
				w.mu.Unlock()
				c.mu.Lock()
				c.draw(drainLine(finished-before, s.Ready+s.Scheduled+s.Running, s.Running, failed, time.Since(began)))
				c.mu.Unlock()
			}
			if clock.Sleep(ctx, drainEvery) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
		c.finish()
	}
}

// drainLine is the line of progress while a queue is being emptied.
func drainLine(finished, left, running int64, failed int, after time.Duration) string {
	finished = max(finished, 0)
	total := max(finished+left, 1)
	rate := float64(finished) / max(after.Seconds(), 0.001)
	const columns = 24
	full := int(columns * finished / total)
	text := fmt.Sprintf("[%s%s] %3d%%  %d of %d  %d running", strings.Repeat("#", full),
		strings.Repeat("-", columns-full), 100*finished/total, finished, total, running)
	if failed > 0 {
		text += fmt.Sprintf("  %d failed attempts", failed)
	}
	if finished > 0 {
		text += fmt.Sprintf("  %.1f/s", rate)
		if left > 0 {
			text += "  " + cli.Short(time.Duration(float64(left)/rate*float64(time.Second))) + " left"
		}
	}
	return text
}
