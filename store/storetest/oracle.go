package storetest

import (
	"errors"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// step sends one request. It compares the store's answer, and the record that
// the store then has, with the law.
func (t *trial) step(req tenure.Request) store.Answer {
	t.Helper()
	return t.steps(t.store, req)[0]
}

// must is a step that the law allows.
func (t *trial) must(req tenure.Request) store.Answer {
	t.Helper()
	a := t.step(req)
	if a.Err != nil {
		t.Fatalf("%s of %q by %s: %v; the check expected it to succeed", req.Verb, req.Key, req.Owner, a.Err)
	}
	return a
}

// stepFrom is stepsFrom for one request.
func (t *trial) stepFrom(records map[string]tenure.Record, req tenure.Request) store.Answer {
	t.Helper()
	return t.stepsFrom(records, t.store, req)[0]
}

// steps sends a batch and compares all of it with the law, requests on one key
// in their order. Nobody else may use the keys meanwhile.
func (t *trial) steps(st store.Store, requests ...tenure.Request) []store.Answer {
	t.Helper()
	return t.stepsFrom(map[string]tenure.Record{}, st, requests...)
}

// stepsFrom is steps for a check that alone uses its keys, from one batch to
// the next. records has the records that earlier steps have left. stepsFrom
// reads only the missing ones, and adds what its own requests leave. If a
// record changes by itself between two batches, the answers show it.
func (t *trial) stepsFrom(records map[string]tenure.Record, st store.Store, requests ...tenure.Request) []store.Answer {
	t.Helper()
	for _, req := range requests {
		if _, read := records[req.Key]; !read && fence.CheckKey(req.Key) == nil {
			records[req.Key] = t.get(st, req.Key)
		}
	}
	answers := t.apply(st, requests...)
	for i, req := range requests {
		records[req.Key] = t.judge(records[req.Key], req, answers[i])
	}
	seen := map[string]bool{}
	for _, req := range requests {
		key := req.Key
		if seen[key] || fence.CheckKey(key) != nil {
			continue
		}
		seen[key] = true
		want := records[key]
		if d := differ(want, t.get(st, key), wholeHistory); d != "" {
			t.Fatalf("after %s: the record kept of %q is not the law's: %s", verbs(requests), key, d)
		}
	}
	return answers
}

// judge compares an answer with the law's answer. It returns the record that
// the law leaves.
func (t *trial) judge(before tenure.Record, req tenure.Request, got store.Answer) tenure.Record {
	t.Helper()
	if errors.Is(got.Err, store.ErrUnknown) {
		t.Fatalf("%s of %q: %v; nothing stood in the way of an answer", req.Verb, req.Key, got.Err)
	}
	if req.Check() != nil {
		if !errors.Is(got.Err, fence.ErrInvalid) {
			t.Fatalf("%s of %q: %v; the request is invalid (%v) and the error must match fence.ErrInvalid",
				req.Verb, req.Key, got.Err, req.Check())
		}
		return before
	}
	if flaw := suite.BadTime(got.Now); flaw != "" {
		t.Fatalf("%s of %q: the answer's Now %s", req.Verb, req.Key, flaw)
	}
	want, _, err := tenure.Apply(before, req, got.Now)
	if d := differentErrors(err, got.Err); d != "" {
		t.Fatalf("%s of %q at %s, state %q until %s: %s",
			req.Verb, req.Key, clockTime(got.Now), before.State, clockTime(before.Deadline), d)
	}
	if d := differ(want, got.Record, historyOrNone); d != "" {
		t.Fatalf("%s of %q: the answer's record is not the law's: %s", req.Verb, req.Key, d)
	}
	return want
}

// differentErrors says how the error of an answer differs from the law's error,
// in all facts that a caller may use. It returns "" if it does not.
func differentErrors(want, got error) string {
	var held, gotHeld *tenure.HeldError
	var lost, gotLost *tenure.NotOwnedError
	switch {
	case want == nil && got == nil:
		return ""
	case want == nil:
		return "refused (" + got.Error() + "), the law allows it"
	case got == nil:
		return "allowed, the law refuses it: " + want.Error()
	case errors.As(want, &held):
		if !errors.As(got, &gotHeld) || !errors.Is(got, tenure.ErrHeld) {
			return "the error is " + got.Error() + ", not a *tenure.HeldError: " + want.Error()
		}
		return differentHeld(held, gotHeld)
	case errors.As(want, &lost):
		if !errors.As(got, &gotLost) || !errors.Is(got, tenure.ErrNotOwned) {
			return "the error is " + got.Error() + ", not a *tenure.NotOwnedError: " + want.Error()
		}
		return differentLost(lost, gotLost)
	case errors.Is(want, fence.ErrInvalid) && errors.Is(got, fence.ErrInvalid):
		return ""
	}
	return "the error is " + got.Error() + ", the law's is " + want.Error()
}

func differentHeld(want, got *tenure.HeldError) string {
	switch {
	case want.Why != got.Why:
		return "HeldError.Why is " + string(got.Why) + ", the law's is " + string(want.Why)
	case !want.Until.Equal(got.Until):
		return "HeldError.Until is " + clockTime(got.Until) + ", the law's is " + clockTime(want.Until)
	case !want.Now.Equal(got.Now):
		return "HeldError.Now is " + clockTime(got.Now) + ", the answer's is " + clockTime(want.Now)
	}
	if d := differ(want.Record, got.Record, historyOrNone); d != "" {
		return "HeldError.Record: " + d
	}
	return ""
}

func differentLost(want, got *tenure.NotOwnedError) string {
	switch {
	case want.Why != got.Why:
		return "NotOwnedError.Why is " + string(got.Why) + ", the law's is " + string(want.Why)
	case want.Grant != got.Grant:
		return "NotOwnedError.Grant is " + string(got.Grant) + ", the law's is " + string(want.Grant)
	case !want.Now.Equal(got.Now):
		return "NotOwnedError.Now is " + clockTime(got.Now) + ", the answer's is " + clockTime(want.Now)
	}
	if d := differ(want.Record, got.Record, historyOrNone); d != "" {
		return "NotOwnedError.Record: " + d
	}
	return ""
}

// refused makes sure that a step was refused for the given reason.
func (t *trial) refused(a store.Answer, why tenure.Why) {
	t.Helper()
	var held *tenure.HeldError
	var lost *tenure.NotOwnedError
	switch {
	case errors.As(a.Err, &held) && held.Why == why:
	case errors.As(a.Err, &lost) && lost.Why == why:
	default:
		t.Fatalf("the answer is %v, the check expected a refusal: %s", a.Err, why)
	}
}

func verbs(requests []tenure.Request) string {
	if len(requests) > 1 {
		return "a batch"
	}
	return "a request to " + string(requests[0].Verb)
}

func clockTime(at time.Time) string { return at.Format("2006-01-02T15:04:05.000000Z07:00") }
