package storetest

import (
	"fmt"

	"github.com/croft-dev/croft/tenure"
)

func history() []check {
	return []check{
		{"the last 32 transfers are kept, in order", lastTransfers},
		{"law 8: every term has a cause, every takeover an actor and a note", everyTermHasACause},
		{"history survives renewals and reports", historySurvives},
	}
}

// checkHistory makes sure that a record's history is possible.
func checkHistory(t *trial, rec tenure.Record) {
	t.Helper()
	if err := rec.Check(); err != nil {
		t.Fatalf("the record is impossible: %v", err)
	}
	grants := map[string]bool{}
	for i, term := range rec.History {
		last := i == len(rec.History)-1
		switch {
		case i > 0 && term.Token <= rec.History[i-1].Token:
			t.Fatalf("in the history token %d comes after %d", term.Token, rec.History[i-1].Token)
		case i > 0 && term.Acquired.Before(rec.History[i-1].Finished):
			t.Fatalf("token %d began at %s, the one before it ended at %s",
				term.Token, clockTime(term.Acquired), clockTime(rec.History[i-1].Finished))
		case grants[string(term.Grant)]:
			t.Fatalf("grant %s is in the history twice", term.Grant)
		case !last && term.Ended == "":
			t.Fatalf("token %d is not the newest and has no end", term.Token)
		case term.Cause == "":
			t.Fatalf("token %d has no cause", term.Token)
		case (term.Cause == tenure.Operator || term.Cause == tenure.Handoff) && (term.Actor == "" || term.Note == ""):
			t.Fatalf("token %d came by hand (%s) and has actor %q and note %q",
				term.Token, term.Cause, term.Actor, term.Note)
		}
		grants[string(term.Grant)] = true
	}
}

func lastTransfers(t *trial) {
	const key = "history/32"
	var tokens []tenure.Term
	records := map[string]tenure.Record{}
	for n := range tenure.HistoryLen + 8 {
		mine := acquire(key, fmt.Sprintf("owner %d", n))
		a := t.stepFrom(records, mine)
		if end := t.stepFrom(records, release(mine)); a.Err != nil || end.Err != nil {
			t.Fatalf("term %d: acquire %v, release %v", n+1, a.Err, end.Err)
		}
		tokens = append(tokens, tenure.Term{Token: a.Record.Token, Grant: a.Record.Grant, Owner: mine.Owner})
		rec := records[key] // stepFrom has compared it with the store's
		if want := min(n+1, tenure.HistoryLen); len(rec.History) != want || rec.Terms != int64(n+1) {
			t.Fatalf("after %d terms the history has %d transfers and counts %d terms; want %d and %d",
				n+1, len(rec.History), rec.Terms, want, n+1)
		}
	}
	rec := t.get(t.store, key)
	checkHistory(t, rec)
	for i, want := range tokens[len(tokens)-tenure.HistoryLen:] {
		if got := rec.History[i]; got.Token != want.Token || got.Grant != want.Grant || got.Owner != want.Owner ||
			got.Ended != tenure.EndReleased {
			t.Fatalf("transfer %d is token %d of %q, ended %q; want token %d of %q, released",
				i, got.Token, got.Owner, got.Ended, want.Token, want.Owner)
		}
	}
}

func everyTermHasACause(t *trial) {
	const key = "laws/8"
	end := func(send tenure.Request, cause tenure.Cause) tenure.Request {
		t.Helper()
		if a := t.must(send); a.Record.Cause != cause {
			t.Fatalf("%s has cause %q, want %q", send.Verb, a.Record.Cause, cause)
		}
		return send
	}
	mine := end(acquire(key, "ann"), tenure.First)
	t.must(release(mine))
	mine = end(acquire(key, "bob"), tenure.Released)
	t.must(fail(mine))
	end(t.expiring(acquire(key, "ann")), tenure.Released)
	t.expire(key)
	end(acquire(key, "bob"), tenure.Expired)
	hand := end(takeover(key), tenure.Operator)
	t.must(release(hand))
	end(acquire(key, "ann"), tenure.Released)
	end(revoke(key), tenure.Cancelled)
	end(acquire(key, "bob"), tenure.Cancelled)
	end(reserve(key, "cleo"), tenure.Operator)
	mine = end(acquire(key, "cleo"), tenure.Handoff)
	t.must(release(mine))
	again := acquire(key, "ann")
	again.Above = t.get(t.store, key).Token + 10
	end(again, tenure.Recovery)
	rec := t.get(t.store, key)
	checkHistory(t, rec)
	var ends []tenure.End
	for _, term := range rec.History {
		ends = append(ends, term.Ended)
	}
	want := []tenure.End{
		tenure.EndReleased, tenure.EndFailed, tenure.EndExpired, tenure.EndTakenOver, tenure.EndReleased,
		tenure.EndTakenOver,
		tenure.EndSuperseded, tenure.EndTakenOver, tenure.EndSuperseded, tenure.EndReleased, "",
	}
	if fmt.Sprint(ends) != fmt.Sprint(want) {
		t.Fatalf("the terms ended %q, want %q", ends, want)
	}
}

func historySurvives(t *trial) {
	const key = "history/renewals"
	t.must(takeover(key))
	mine := acquire(key, "ann")
	t.must(revoke(key))
	t.must(mine)
	before := t.get(t.store, key).History
	for range 3 {
		t.must(renew(mine))
		t.must(report(mine, "half"))
	}
	after := t.get(t.store, key).History
	if fmt.Sprint(before) != fmt.Sprint(after) || len(after) != 3 {
		t.Fatalf("renewals have changed the history from %v to %v", before, after)
	}
}
