package redis

import (
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/turns"
	"github.com/croft-dev/croft/store/storetest"
)

// flaws are ways to break the script. Each has the part of the suite that must
// notice it.
var flaws = []struct{ name, group, old, change string }{
	{"anybody releases", "transitions", "    if mine and alive then\n      outcome, record_changed, state", "    if alive then\n      outcome, record_changed, state"},
	{"anybody renews", "transitions", "if mine and state == HELD and", "if record and state == HELD and"},
	{"a lease is renewed after its deadline", "repeats", "(now < deadline or flag == RESUMING)", "true"},
	{"nothing is resumed", "repeats", "(now < deadline or flag == RESUMING)", "now < deadline"},
	{"a held key is granted", "transitions", "    elseif alive then\n      outcome = IS_HELD", "    elseif false then\n      outcome = IS_HELD"},
	{"tokens stay the same", "tokens", "max((record and token or 0) + 1, above + 1, now)", "max(record and token or 0, above + 1, record and 0 or now)"},
	{"above is ignored", "tokens", "max((record and token or 0) + 1, above + 1, now)", "max((record and token or 0) + 1, now)"},
	{"a secret is granted twice", "repeats", "    elseif over then\n      outcome = lost(over, as) -- a secret", "    elseif false then\n      outcome = lost(over, as) -- a secret"},
	{"a secret of the past is granted again", "repeats", "over, as = past(key, grant, found[4] or '', transfers)", "over = nil"},
	{"the history is not kept", "history", "old_term = pack(PAST", "old_term = nil and pack(PAST"},
	{"the history is one too short", "history", "letter = transfers % HISTORY + 1", "letter = transfers % (HISTORY - 1) + 1"},
	{"a repeated acquire prolongs", "repeats", "outcome = DONE -- the reply was lost", "outcome, record_changed, deadline = DONE, true, now + lease_ttl -- the reply was lost"},
	{"a shorter renewal takes time back", "deadlines", "if now + lease_ttl >= deadline or now < renewed then deadline", "if true then deadline"},
	{"a reservation is for everybody", "reservations", "elseif is_reserved and sub(words", "elseif false and sub(words"},
	{"a hold is not kept", "periods", "and now < hold then", "and false then"},
	{"a failure counts as success", "periods", "if flag == FAILED then", "if false then"},
	{"records stay", "retention", "max(matters, deadline, renewed) + retention <= now then -- gone", "false then -- gone"},
	{"records leave too early", "retention", "max(matters, deadline, renewed) + retention <= now then -- gone", "deadline + retention <= now then -- gone"},
	{"the operator's word is lost", "reservations", ".. sub(words, from, names_size) ..", ".. '\\0\\0\\0\\0' .."},
	{"a checkpoint is not kept", "checkpoints", "call('HSET', key, 'c', saved)", "saved = saved"},
	{"a checkpoint is not told to the next holder", "checkpoints", "if record then\n    n = n + 1\n    answers[n] = saved or", "if record then\n    n = n + 1\n    answers[n] = outcome ~= GRANTED and saved or"},
	{"a checkpoint is no progress", "transitions", "progressed, saved = now, sub(", "saved = sub("},
	{"watchers are not told", "watch", "if changed then\n", "if false then\n"},
	{"only the first is told", "watch", "for _, key in ipairs(changed) do", "for i, key in ipairs({}) do"},
	{"operators' acts are not announced", "acts", "if acted then\n", "if false then\n"},
	{"grants are announced as operators' acts", "acts", "if message and verb >= TAKEOVER then\n", "if true then\n"},
}

// TestScriptsBrokenOnPurposeAreCaught runs the suite on broken scripts.
func TestScriptsBrokenOnPurposeAreCaught(t *testing.T) {
	t.Parallel()
	testenv.Redis(t) // skips the test here where no server may run: no variant could fail
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			lua := variant(t, f.old, f.change)
			caught := false
			failures := storetest.Failures(t, func(tb testing.TB) storetest.Harness {
				if caught {
					tb.SkipNow() // one check is enough
				}
				tb.Cleanup(func() { caught = tb.Failed() })
				h := place(tb, lua)
				h.Patience = turns.Grace // do not wait long for a wake-up that does not come
				return h
			}, f.group)
			if len(failures) == 0 {
				t.Errorf("%s: the suite has not noticed", f.name)
			}
			for check, said := range failures {
				t.Logf("caught by %q: %s", check, said[0])
			}
		})
	}
}
