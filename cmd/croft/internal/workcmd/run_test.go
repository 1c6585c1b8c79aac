package workcmd

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/work"
)

func TestTheLineOfADrainSaysHowFarItHasCome(t *testing.T) {
	for _, c := range []struct {
		finished, left, running int64
		failed                  int
		want                    string
	}{
		{0, 10, 2, 0, "[------------------------]   0%  0 of 10  2 running"},
		{5, 5, 1, 3, "[############------------]  50%  5 of 10  1 running  3 failed attempts  0.5/s  10s left"},
		{10, 0, 0, 0, "[########################] 100%  10 of 10  0 running  1.0/s"},
		{-3, 0, 0, 0, "[------------------------]   0%  0 of 1  0 running"},
	} {
		if got := drainLine(c.finished, c.left, c.running, c.failed, 10*time.Second); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestTheEndOfWhatACommandSaysIsKept(t *testing.T) {
	c := &collector{most: 4 * work.MaxError, tail: true}
	for i := range 5000 {
		_, _ = io.WriteString(c, strings.Repeat("x", i%50)+"\n")
	}
	_, _ = io.WriteString(c, "last \xff words\n")
	text := c.lastLines()
	if !strings.HasSuffix(text, "\nlast ? words") || strings.Count(text, "\n") != 19 || len(text) > work.MaxError {
		t.Errorf("kept %q", text)
	}
	c = &collector{most: 10}
	_, _ = io.WriteString(c, "0123456789")
	if c.over {
		t.Error("10 of 10 bytes are too many")
	}
	_, _ = io.WriteString(c, "x")
	if !c.over || string(c.data) != "0123456789" {
		t.Errorf("kept %q, over %v", c.data, c.over)
	}
}
