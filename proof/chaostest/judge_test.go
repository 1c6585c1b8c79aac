//go:build unix

package chaostest

import (
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// evidence is what a scene leaves behind.
type evidence struct {
	added     map[work.ID]string // payloads
	items     []work.Item        // with all fields
	effects   []work.Effect
	delivered map[string][]string // bodies by Idempotency-Key
	confirmed map[work.ID][]fence.Token
	tally     map[work.ID]int
}

// judge lists the broken promises. The promise: every item is done exactly once
// in effect, and nothing is lost.
func judge(e evidence) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	results := map[work.ID]work.Item{}
	for _, it := range e.items {
		results[it.ID] = it
		if e.added[it.ID] == "" {
			say("item %s was never added", it.ID)
		}
	}
	rows := map[work.ID][]work.Effect{}
	for _, x := range e.effects {
		rows[x.Item] = append(rows[x.Item], x)
		if x.State != work.Sent {
			say("effect %s is %s", x.EffectID, x.State)
		}
	}
	keys := map[string]bool{}
	for id, payload := range e.added {
		it, found := results[id]
		switch {
		case !found:
			say("item %s (%s) is lost", id, payload)
			continue
		case it.State != work.Done:
			say("item %s (%s) is %s", id, payload, it.State)
			continue
		case string(it.Payload) != payload:
			say("item %s: its payload is %q, want %q", id, it.Payload, payload)
		case string(it.Result) != string(content(it, it.Record.Owner)):
			say("item %s: its result is %q, and its owner %s under %d", id, it.Result, it.Record.Owner, it.Record.Token)
		}
		if len(rows[id]) != 1 || rows[id][0].Token != it.Record.Token || string(rows[id][0].Body) != string(it.Result) {
			say("item %s: its effects are %+v, want one, of the attempt under %d", id, rows[id], it.Record.Token)
		}
		key := work.EffectID{Item: id, Name: "notify"}.String()
		keys[key] = true
		if len(e.delivered[key]) == 0 {
			say("item %s: nothing was delivered under %s", id, key)
		}
		for _, body := range e.delivered[key] {
			if body != string(it.Result) {
				say("item %s: %q was delivered, the result is %q", id, body, it.Result)
			}
		}
		for _, token := range e.confirmed[id] {
			if token != it.Record.Token {
				say("item %s: a worker was told that it is done under %d, and it is under %d", id, token, it.Record.Token)
			}
		}
		want := 0
		if inTransaction(it.Payload) {
			want = 1
		}
		if e.tally[id] != want {
			say("item %s: %d lines in the tally, want %d; its result is %q", id, e.tally[id], want, it.Result)
		}
	}
	for key, bodies := range e.delivered {
		if !keys[key] {
			say("%d deliveries under %q, which is no effect's identity", len(bodies), key)
		}
	}
	return broken
}
