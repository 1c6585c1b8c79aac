package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/tenure"
)

func TestTheProgressBarSaysHowMuchIsDone(t *testing.T) {
	for _, c := range []struct {
		total, read int64
		width       int
		want        string
	}{
		{0, 3 << 20, 80, "3.0 MiB  1.5 MiB/s"},
		{40 << 20, 10 << 20, 80, "[######------------------]  25%  10.0 MiB of 40.0 MiB  5.0 MiB/s  6s left"},
		{40 << 20, 10 << 20, 30, "25%  10.0 MiB of 40.0 MiB  5."},
		{100, 100, 80, "[########################] 100%  100 B of 100 B  50 B/s"},
		{100, 120, 80, "[########################] 100%  100 B of 100 B  60 B/s"}, // the file has grown
		{100, 0, 80, "[------------------------]   0%  0 B of 100 B  0 B/s"},
		{100, 50, 0, ""},
	} {
		p := &progress{total: c.total, width: c.width}
		p.read.Store(c.read)
		if got := p.line(2 * time.Second); got != c.want {
			t.Errorf("%d of %d in %d columns: %q, want %q", c.read, c.total, c.width, got, c.want)
		}
	}
}

func TestTheProgressLineSaysHowMuchIsCounted(t *testing.T) {
	p := &progress{unit: "keys", width: 80}
	p.read.Store(3000)
	if got, want := p.line(2*time.Second), "3000 keys  1500/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheLineOfAWaitNamesTheHolder(t *testing.T) {
	held := &tenure.Record{State: tenure.Held, Owner: "ada@one"}
	for want, got := range map[string]string{
		"croft: waiting for job: 1s of 5m0s":                                  waitLine("job", nil, 1700*time.Millisecond, 5*time.Minute, 0),
		"croft: waiting for job: 1s":                                          waitLine("job", &tenure.Record{}, time.Second, croft.Forever, 0),
		"croft: waiting for \"my job\", held by ada@one: 2m0s of 1h0m0s":      waitLine("my job", held, 2*time.Minute, time.Hour, 0),
		"croft: waiting for job: 9s of 1m0s; no answer from the store for 7s": waitLine("job", nil, 9*time.Second, time.Minute, 6500*time.Millisecond),
		"croft: waiting for the store's answer: 3s":                           askLine(2500 * time.Millisecond),
		"": askLine(0),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAStoreIsSilentFromItsLastAnswerOn: whether it refuses or grants, it has
// answered.
func TestAStoreIsSilentFromItsLastAnswerOn(t *testing.T) {
	a := &App{Stderr: &bytes.Buffer{}}
	silent := croft.Event{Kind: croft.EventCall, Outcome: croft.OutcomeUnknown, Took: time.Minute}
	for _, e := range []croft.Event{{Kind: croft.EventCall, Outcome: croft.OutcomeHeld}, {Kind: croft.EventCall, Outcome: croft.OutcomeOK}} {
		if got := a.silence.lasts(); got != 0 {
			t.Errorf("silent for %s before any call", got)
		}
		a.heard(silent)
		a.heard(croft.Event{Kind: croft.EventUnknown, Err: errors.New("refused")})
		silent.Took = time.Second
		a.heard(silent) // the first call counts
		if got := a.silence.lasts(); got < time.Minute/2 {
			t.Errorf("silent for %s, the first call took a minute", got)
		}
		silent.Took = time.Minute
		a.heard(e)
	}
	if got := a.silence.lasts(); got != 0 {
		t.Errorf("silent for %s after an answer", got)
	}
}

// TestAMessageStandsAboveTheBar: it replaces the bar, which comes again below.
func TestAMessageStandsAboveTheBar(t *testing.T) {
	var out bytes.Buffer
	a := &App{Stderr: &out}
	p := &progress{w: &out, width: 80, said: make(chan string), end: make(chan struct{}), ended: make(chan struct{})}
	p.show("waiting")
	a.bar.Store(p)
	go p.run()
	a.sayAbove("why\n")
	close(p.end)
	<-p.ended
	a.sayAbove("the end\n") // the bar is gone
	if want := "\rwaiting\r\r       \rwhy\nthe end\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestTheProgressBarLeavesNothingBehind: the bar is removed, and does not
// change the content.
func TestTheProgressBarLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	p := &progress{r: strings.NewReader("content"), w: &out, width: 80, end: make(chan struct{}), ended: make(chan struct{})}
	if got, err := io.ReadAll(p); err != nil || string(got) != "content" || p.read.Load() != 7 {
		t.Errorf("%q, %v, %d counted", got, err, p.read.Load())
	}
	p.show("a long line")
	p.show("short")
	close(p.end)
	p.run()
	if want := "\ra long line\r\rshort      \r\r     \r"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestNoProgressBarWhereNobodyLooks: only a terminal gets a bar.
func TestNoProgressBarWhereNobodyLooks(t *testing.T) {
	a := &App{Stderr: &bytes.Buffer{}}
	r := strings.NewReader("content")
	if got, stop := a.Progress(r); got != io.Reader(r) {
		t.Error("a bar was made for what is no terminal")
	} else {
		stop()
	}
	count, stop := a.CountOnTerminal("keys")
	count()
	stop()
	stop()
}
