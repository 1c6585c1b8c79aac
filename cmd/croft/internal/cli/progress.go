package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A progress bar appears after progressAfter, and moves every progressEvery.
const (
	progressAfter = 500 * time.Millisecond // quick writes show no bar
	progressEvery = 200 * time.Millisecond
)

// progress is a progress bar on a terminal for content that takes long to read,
// or for things that take long to count. stop removes it.
//
// One goroutine, run, draws the bar and alone uses shown. The reader tells it
// through read how much it has read. Messages for the place of the bar go
// through said. stop closes end, and waits until run has closed ended.
type progress struct {
	r     io.Reader
	w     io.Writer
	width int
	total int64                            // 0 if not known
	unit  string                           // of what is counted; empty: bytes
	text  func(after time.Duration) string // the whole line, if it is set
	began time.Time

	read  atomic.Int64
	said  chan string
	shown int // columns of the last line
	end   chan struct{}
	ended chan struct{}
}

// Progress returns r with a progress bar on standard error. It shows none if
// standard error is no terminal, or with --json. stop removes the bar.
func (a *App) Progress(r io.Reader) (reader io.Reader, stop func()) {
	p, stop := a.startProgress(&progress{r: r, total: sizeOf(r)})
	if p == nil {
		return r, stop
	}
	return p, stop
}

// CountOnTerminal shows on standard error how often count was called, where
// Progress would show a bar. stop removes the line. It may be called twice.
func (a *App) CountOnTerminal(unit string) (count, stop func()) {
	p, stop := a.startProgress(&progress{unit: unit})
	if p == nil {
		return func() {}, stop
	}
	return func() { p.read.Add(1) }, stop
}

// startProgress draws a bar until stop is called. It returns nil if nobody
// would see the bar, or if there is one already.
func (a *App) startProgress(p *progress) (started *progress, stop func()) {
	width, isTerminal := TerminalWidth(a.Stderr)
	if !isTerminal || a.JSON || os.Getenv("TERM") == "dumb" {
		return nil, func() {}
	}
	p.w, p.width, p.began = a.Stderr, width, time.Now()
	p.said, p.end, p.ended = make(chan string), make(chan struct{}), make(chan struct{})
	if !a.bar.CompareAndSwap(nil, p) {
		return nil, func() {}
	}
	go p.run()
	return p, sync.OnceFunc(func() {
		close(p.end)
		<-p.ended
		a.bar.Store(nil)
	})
}

// sayAbove writes a message of whole lines to standard error. A bar moves below
// it.
func (a *App) sayAbove(message string) {
	if p := a.bar.Load(); p != nil {
		select {
		case p.said <- message:
			return
		case <-p.ended:
		}
	}
	fmt.Fprint(a.Stderr, message)
}

// sizeOf is the size of a regular file, or 0.
func sizeOf(r io.Reader) int64 {
	f, ok := r.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

func (p *progress) Read(buf []byte) (int, error) {
	n, err := p.r.Read(buf)
	p.read.Add(int64(n))
	return n, err
}

// run draws the bar until it is stopped, and then removes it.
func (p *progress) run() {
	defer close(p.ended)
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-p.end:
			p.show("")
			return
		case message := <-p.said:
			p.show("")
			fmt.Fprint(p.w, message)
		case <-wait.C:
			p.show(p.line(time.Since(p.began)))
			wait.Reset(progressEvery)
		}
	}
}

// show replaces the line on the terminal.
func (p *progress) show(line string) {
	if line == "" && p.shown == 0 {
		return
	}
	n := len([]rune(line))
	fmt.Fprintf(p.w, "\r%s%s\r", line, strings.Repeat(" ", max(0, p.shown-n)))
	p.shown = n
}

// line is the text of the bar: how much was read, of how much, how fast, and
// the time left.
func (p *progress) line(after time.Duration) string {
	if p.text != nil {
		return Cut(p.text(after), max(0, p.width-1))
	}
	read := p.read.Load()
	rate := int64(float64(read) / max(after.Seconds(), 0.001))
	if p.unit != "" {
		return p.cut(fmt.Sprintf("%d %s  %d/s", read, p.unit, rate))
	}
	if p.total == 0 {
		return p.cut(fmt.Sprintf("%s  %s/s", BytesText(read), BytesText(rate)))
	}
	read = min(read, p.total)
	text := fmt.Sprintf(" %3d%%  %s of %s  %s/s", 100*read/p.total, BytesText(read), BytesText(p.total),
		BytesText(rate))
	if rate > 0 && read < p.total {
		text += "  " + (time.Duration((p.total-read)/rate) * time.Second).String() + " left"
	}
	const columns = 24
	if p.width < columns+2+len(text) {
		return p.cut(strings.TrimSpace(text))
	}
	full := int(columns * read / p.total)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", columns-full) + "]" + text
}

// cut leaves the last column free, because some terminals begin a new line
// after it.
func (p *progress) cut(text string) string { return text[:min(len(text), max(0, p.width-1))] }

// BytesText is a size for people.
func BytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
