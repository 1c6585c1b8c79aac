package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// voice tells how far it is: a line each, with the time since the beginning and the part that it is about.
type voice struct {
	began time.Time
	mu    sync.Mutex
	out   io.Writer
}

func newVoice(out io.Writer) *voice { return &voice{began: time.Now(), out: out} }

// say prints a line; there is nobody to tell when that fails.
func (v *voice) say(part, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	since := time.Since(v.began)
	_, _ = fmt.Fprintf(
		v.out, "%3d:%02d  %-9s %s\n", int(since.Minutes()), int(since.Seconds())%60, part,
		fmt.Sprintf(format, args...),
	)
}

// lines is a writer whose lines are said for a part.
func (v *voice) lines(part string) io.Writer { return &liner{v: v, part: part} }

type liner struct {
	v    *voice
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
