package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// How a progress bar moves.
const (
	progressAfter = 500 * time.Millisecond // what is done sooner needs none
	progressEvery = 200 * time.Millisecond
)

// progress shows on a terminal how much of some content has been read, while that takes long. It goes away when the content is written.
type progress struct {
	r     io.Reader
	w     io.Writer
	width int
	total int64 // 0: not known
	began time.Time

	read  atomic.Int64
	shown int // columns of the last line
	end   chan struct{}
	ended chan struct{}
}

// progress makes a bar over content on standard error, if that is a terminal and nothing else is to be read there; otherwise it returns r and a stop that does nothing.
func (a *app) progress(r io.Reader) (reader io.Reader, stop func()) {
	width, isTerminal := terminal(a.stderr)
	if !isTerminal || a.json || os.Getenv("TERM") == "dumb" {
		return r, func() {}
	}
	p := &progress{r: r, w: a.stderr, width: width, total: sizeOf(r), began: time.Now(), end: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return p, func() {
		close(p.end)
		<-p.ended
	}
}

// sizeOf is the size of a file, 0 if r is none.
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

// run draws the bar until it is stopped, and takes it away.
func (p *progress) run() {
	defer close(p.ended)
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-p.end:
			p.show("")
			return
		case <-wait.C:
			p.show(p.line(time.Since(p.began)))
			wait.Reset(progressEvery)
		}
	}
}

// show puts a line in place of the last.
func (p *progress) show(line string) {
	if line == "" && p.shown == 0 {
		return
	}
	n := len([]rune(line))
	fmt.Fprintf(p.w, "\r%s%s\r", line, strings.Repeat(" ", max(0, p.shown-n)))
	p.shown = n
}

// line is the bar after some time: what was read, of how much, how fast, and how long it will take.
func (p *progress) line(after time.Duration) string {
	read := p.read.Load()
	rate := int64(float64(read) / max(after.Seconds(), 0.001))
	if p.total == 0 {
		return p.cut(fmt.Sprintf("%s  %s/s", bytesText(read), bytesText(rate)))
	}
	read = min(read, p.total)
	text := fmt.Sprintf(" %3d%%  %s of %s  %s/s", 100*read/p.total, bytesText(read), bytesText(p.total), bytesText(rate))
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

// cut leaves the last column free, where some terminals begin a new line.
func (p *progress) cut(text string) string { return text[:min(len(text), max(0, p.width-1))] }

// bytesText is a size as people read it.
func bytesText(n int64) string {
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
