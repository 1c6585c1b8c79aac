package drill

import (
	"context"
	"fmt"

	"github.com/croft-dev/croft/tenure"
)

// script describes a scene.
type script struct {
	name, story string
	cast        []string
	rush        bool // contenders take part
	play        func(ctx context.Context, s *stage)
}

// scripts are all scenes, in the order of the report. In each, A is the old
// owner and B the newer one.
var scripts = []script{
	{
		"pause", "A is stopped in the middle of a write, for longer than its lease lasts; B takes over; A wakes up",
		[]string{"A", "B"},
		false, playPause,
	},
	{
		"cutoff", "A can no longer reach the store, but still reaches the file; B takes over",
		[]string{"A", "B"},
		false, playCutoff,
	},
	{
		"operator", "an operator takes the key by hand while A is working",
		[]string{"A", "operator"},
		false, playOperator,
	},
	{
		"messages", "a reply is lost; a copy of a request arrives when everything is over",
		[]string{"A", "B"},
		false, playMessages,
	},
	{
		"crash", "A is killed in the middle of a write; B takes over",
		[]string{"A", "B"},
		false, playCrash,
	},
	{
		"rush", "A is killed, and many ask for its expired lease at the same moment",
		[]string{"A"},
		true, playRush,
	},
}

func (sc script) contenders(n int) int {
	if !sc.rush {
		return 0
	}
	return n
}

func contender(n int) string { return fmt.Sprintf("C%d", n+1) }

// begin lets A acquire the key and write its first result. Most scenes begin
// so.
func (s *stage) begin(ctx context.Context) (first tenure.Record, ok bool) {
	a := s.cast["A"]
	r := a.call(ctx, s.acquire(0))
	return r.Record, s.step("grant", "A takes the lease and writes", "granted, written",
		granted(r, tenure.First, tenure.Record{}).
			then(func() verdict { return s.publishes(ctx, a, result(1, "A", r.Record.Token)) }))
}

// succeed lets B wait for the key until A's lease is over. It reads A's record
// when A can no longer change it.
func (s *stage) succeed(ctx context.Context) (second tenure.Record, ok bool) {
	expected := fmt.Sprintf("granted when A's %s are over", s.o.TTL)
	last, _, f := s.record(ctx)
	if f != nil {
		return tenure.Record{}, s.step("expiry", "B waits for the key", expected, notDone(f))
	}
	s.note("B", Asked)
	r := s.cast["B"].call(ctx, s.acquire(s.await()))
	return r.Record, s.step("expiry", "B waits for the key", expected, granted(r, tenure.Expired, last))
}
