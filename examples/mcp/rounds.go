package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft"
)

// faults lists what may happen to an agent before it is replaced. Those with
// "in a call" happen while its server carries a write out.
var faults = []string{
	"the agent is frozen",
	"the agent is frozen in a call",
	"the agent and its proxy are frozen",
	"the agent and its proxy are frozen in a call",
	"the proxy is killed",
	"the proxy is killed in a call",
	"the server is killed",
	"the server is killed in a call",
	"the pipe to the proxy is cut in a call",
	"the pipe from the proxy is cut in a call",
	"nothing happens",
	"nothing happens in a call",
}

// tally counts what happened in the rounds.
type tally struct {
	Rounds, Writes, Refused, Doubts, Lapsed int
	Faults                                  map[string]int
}

func (t *tally) String() string {
	return fmt.Sprintf("%d rounds, %d faults of %d kinds, %d writes, %d refused, %d in doubt, %d by TTL",
		t.Rounds, sum(t.Faults), len(t.Faults), t.Writes, t.Refused, t.Doubts, t.Lapsed)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// play plays takeovers with random faults, and judges them. In each round an
// agent is replaced by the next one. Then it calls a tool again, which must be
// refused.
func (p *place) play(ctx context.Context, out io.Writer, rounds int, seed uint64) (*tally, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	t := &tally{Faults: map[string]int{}}
	var order []string // so that few rounds have all faults
	old, err := p.successor(t, 0)
	if err != nil {
		return t, err
	}
	defer func() { old.end() }()
	for t.Rounds < rounds {
		if len(order) == 0 {
			order = slices.Clone(faults)
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		fault := order[0]
		order = order[1:]
		next, err := p.round(ctx, t, old, fault, random)
		if next != nil {
			old.end()
			old = next
		}
		if err == nil {
			err = p.judge()
		}
		if err != nil {
			return t, fmt.Errorf("seed %d, round %d, %s: %w", seed, t.Rounds+1, fault, err)
		}
		t.Faults[fault]++
		if t.Rounds++; t.Rounds%20 == 0 || t.Rounds == rounds {
			_, _ = fmt.Fprintln(out, t)
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(t.Faults)) {
		_, _ = fmt.Fprintf(out, "   %3d  %s\n", t.Faults[fault], fault)
	}
	return t, nil
}

// textOf returns the text of an agent's write. The judge reads it.
func textOf(a *actor, what string) string { return fmt.Sprintf("%d %s %s", a.token, a.name, what) }

// successor starts an agent that has the task and has written. On a busy
// machine an agent may lose its task before that.
func (p *place) successor(t *tally, round int) (*actor, error) {
	for try := 1; ; try++ {
		a, err := p.start(fmt.Sprintf("agent-%d-%d", round, try))
		if err != nil {
			return nil, err
		}
		said, err := a.insist(textOf(a, "first"))
		if err == nil && said == "written" {
			t.Writes++
			return a, nil
		}
		a.end()
		if err != nil || try == 5 || codeOf(said) != "not_owned" && codeOf(said) != "stale" {
			return nil, fmt.Errorf("%s cannot write: %s, %w", a.name, said, err)
		}
	}
}

// round lets a fault happen to an agent, and replaces it.
func (p *place) round(ctx context.Context, t *tally, old *actor, fault string, random *rand.Rand) (*actor, error) {
	answer := func() (string, error) { return "written", nil }
	if strings.HasSuffix(fault, "in a call") {
		var err error
		if answer, err = old.begin("write_file", textOf(old, "slowly"), true); err != nil {
			return nil, err
		}
		// On a busy machine the agent may have lost its task by now.
		_ = until("the server", func() bool { return p.exists("under-way-"+old.name) || len(old.said) > 0 })
		// The call goes on at some moment of the takeover.
		pause := time.Duration(random.IntN(1500)) * time.Millisecond
		timer := time.AfterFunc(pause, func() { _ = p.letGo(old.name) })
		defer timer.Stop()
	}
	if err := strike(old, fault); err != nil {
		return nil, err
	}
	if random.IntN(6) == 0 && strings.Contains(fault, "frozen") {
		t.Lapsed++ // the next one waits for the end of the TTL
	} else if _, err := p.client.Revoke(ctx, task, croft.ByHand{Note: "reassigned"}); err != nil &&
		!errors.Is(err, croft.ErrUnfenced) {
		return nil, err
	}
	next, err := p.successor(t, t.Rounds+1)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.letGo(old.name), old.thaw()); err != nil {
		return next, err
	}
	said, err := answer()
	if err != nil {
		return next, err
	}
	switch codeOf(said) {
	case "unknown", "gone":
		t.Doubts++
	case "":
		t.Writes++
	}
	// Its next call may find that the proxy has ended, and the resource closed.
	if said, err = old.insist(textOf(old, "too late")); err != nil {
		return next, err
	}
	if code := codeOf(said); code != "not_owned" && code != "stale" {
		return next, fmt.Errorf("the replaced %s is told: %s", old.name, said)
	}
	t.Refused++
	if _, err := p.refusal(ctx, old.name); err != nil {
		return next, err
	}
	if said, err = next.insist(textOf(next, "last")); err == nil && said == "written" {
		t.Writes++
	}
	return next, err
}

// strike lets a fault happen.
func strike(a *actor, fault string) error {
	switch {
	case strings.HasPrefix(fault, "the agent is frozen"):
		return a.freeze(false)
	case strings.HasPrefix(fault, "the agent and its proxy"):
		return a.freeze(true)
	case strings.HasPrefix(fault, "the proxy is killed"):
		return a.kill("proxy")
	case strings.HasPrefix(fault, "the server is killed"):
		return a.kill("server")
	case strings.HasPrefix(fault, "the pipe to"):
		return a.tell(order{Cut: "in"})
	case strings.HasPrefix(fault, "the pipe from"):
		return a.tell(order{Cut: "out"})
	}
	return nil
}

// letGo lets a slow write go on.
func (p *place) letGo(name string) error {
	return os.WriteFile(filepath.Join(p.folder, "go-"+name), nil, 0o600)
}

// judge reads the journal of the servers: no write came after one with a newer
// token, none came twice, and none came too late. The file has the last one.
func (p *place) judge() error {
	text, err := os.ReadFile(filepath.Join(p.folder, "journal"))
	if err != nil {
		return err
	}
	var newest int64
	seen := map[string]bool{}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		number, what, _ := strings.Cut(line, " ")
		token, err := strconv.ParseInt(number, 10, 64)
		switch {
		case err != nil:
			return fmt.Errorf("the journal has %q", line)
		case token < newest:
			return fmt.Errorf("the write %q came after one with token %d", line, newest)
		case seen[line]:
			return fmt.Errorf("the write %q came twice", line)
		case strings.Contains(what, "too late"):
			return fmt.Errorf("the write %q of a replaced agent took effect", line)
		}
		newest, seen[line] = token, true
	}
	if last := lines[len(lines)-1]; p.content() != last {
		return fmt.Errorf("the file has %q, and the last write was %q", p.content(), last)
	}
	return nil
}
