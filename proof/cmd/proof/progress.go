package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints progress lines, each with the time since the beginning and
// the name of its part. It is safe for concurrent use.
type progress struct {
	began time.Time
	mu    sync.Mutex
	out   io.Writer
}

func newProgress(out io.Writer) *progress { return &progress{began: time.Now(), out: out} }

// say prints a line. Errors of writing are ignored.
func (v *progress) say(part, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	since := time.Since(v.began)
	_, _ = fmt.Fprintf(
		v.out, "%3d:%02d  %-9s %s\n", int(since.Minutes()), int(since.Seconds())%60, part,
		fmt.Sprintf(format, args...),
	)
}

// lines returns a writer for a part. It prints whole lines.
func (v *progress) lines(part string) io.Writer { return &liner{v: v, part: part} }

type liner struct {
	v    *progress
	part string
	rest []byte
}

func (l *liner) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		l.rest = rest
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.v.say(l.part, "%s", line)
		}
	}
}
