package tenure_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// table is the law of ownership. For every situation it says who asks at which
// time, and the answer to each verb.
//
//	+cause      granted; the term has this cause
//	same        yes, and the record already shows it
//	extend      the deadline moves
//	progress    the progress marker changes; if the request is a checkpoint
//	            instead of a report, it is saved
//	free        released
//	failed      released after failure
//	take, reserve, revoke: the operator's act takes effect
//	held, reserved, hold: refused with a HeldError for this reason
//	!why        refused with a NotOwnedError for this reason
//	bad         bad input: the secret was used for another request
const table = `
asked by       acquire     renew       renew+resume report      report+resume release     release+failed takeover  reserve     revoke

nothing:
  0s bob       +first      !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

held: 0s acquire ann
  0s ann       same        extend      extend       progress    progress      free        failed      bad         bad         bad
  0s bob       held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  59s ann      same        extend      extend       progress    progress      free        failed      bad         bad         bad
  59s bob      held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  60s ann      !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  60s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  61s ann      !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  61s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

renewed: 0s acquire ann; 50s renew ann
  109s ann     same        extend      extend       progress    progress      free        failed      bad         bad         bad
  109s bob     held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  110s ann     !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  110s bob     +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

reported: 0s acquire ann; 50s report ann
  59s ann      same        extend      extend       progress    progress      free        failed      bad         bad         bad
  59s bob      held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  60s ann      !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  60s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

saved: 0s acquire ann; 50s checkpoint ann
  59s ann      same        extend      extend       progress    progress      free        failed      bad         bad         bad
  59s bob      held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  60s ann      !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  60s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

saved, then released: 0s acquire ann; 50s checkpoint ann; 51s release ann
  51s bob      +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

saved, then revoked: 0s acquire ann; 50s checkpoint ann; 51s revoke opal
  51s ann      !taken_over !taken_over !taken_over  !taken_over !taken_over   !taken_over !taken_over bad         bad         bad
  51s bob      +cancelled  !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

saved, then held by another: 0s acquire ann; 50s checkpoint ann; 60s acquire bob
  60s ann      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         bad         bad
  60s bob      same        extend      extend       progress    progress      free        failed      bad         bad         bad

resumed after its deadline: 0s acquire ann; 90s renew+resume ann
  149s ann     same        extend      extend       progress    progress      free        failed      bad         bad         bad
  149s bob     held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  150s bob     +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

released: 0s acquire ann; 5s release ann
  5s ann       !released   !released   !released    !released   !released     same        same        bad         bad         bad
  5s bob       +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  61s ann      !released   !released   !released    !released   !released     same        same        bad         bad         bad
  61s bob      +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

failed: 0s acquire ann; 5s release+failed ann
  5s ann       !released   !released   !released    !released   !released     same        same        bad         bad         bad
  5s bob       +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

held, to be on hold: 0s acquire+hold ann
  59s bob      held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  60s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

on hold after success: 0s acquire+hold ann; 5s release ann
  5s bob       hold        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  5s ann       !released   !released   !released    !released   !released     same        same        bad         bad         bad
  3599s bob    hold        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  3600s bob    +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

no hold after failure: 0s acquire+hold ann; 5s release+failed ann
  5s bob       +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

no hold after an operator: 0s acquire+hold ann; 5s release ann; 6s revoke opal
  6s bob       +cancelled  !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

reserved for bob: 0s acquire ann; 5s reserve:bob opal
  5s ann       !taken_over !taken_over !taken_over  !taken_over !taken_over   !taken_over !taken_over bad         bad         bad
  5s opal      !released   !released   !released    !released   !released     !released   !released   bad         same        bad
  5s bob       +handoff    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  5s eve       reserved    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  64s bob      +handoff    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  64s eve      reserved    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  65s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  65s eve      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  65s opal     !released   !released   !released    !released   !released     !released   !released   bad         same        bad

reserved from nothing: 0s reserve:bob opal
  59s eve      reserved    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  59s bob      +handoff    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  60s eve      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

handed over: 0s acquire ann; 5s reserve:bob opal; 6s acquire bob
  6s ann       !taken_over !taken_over !taken_over  !taken_over !taken_over   !taken_over !taken_over bad         bad         bad
  6s opal      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         !superseded bad
  6s bob       same        extend      extend       progress    progress      free        failed      bad         bad         bad
  6s eve       held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

revoked: 0s acquire ann; 5s revoke opal
  5s ann       !taken_over !taken_over !taken_over  !taken_over !taken_over   !taken_over !taken_over bad         bad         bad
  5s opal      !released   !released   !released    !released   !released     !released   !released   bad         bad         same
  5s bob       +cancelled  !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  999s bob     +cancelled  !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

revoked, then held: 0s acquire ann; 5s revoke opal; 6s acquire bob
  6s opal      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         bad         !superseded
  6s bob       same        extend      extend       progress    progress      free        failed      bad         bad         bad

revoked, then released: 0s acquire ann; 5s revoke opal; 6s acquire bob; 7s release bob
  7s eve       +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

taken over: 0s acquire ann; 5s takeover opal
  5s ann       !taken_over !taken_over !taken_over  !taken_over !taken_over   !taken_over !taken_over bad         bad         bad
  5s opal      same        extend      extend       progress    progress      free        failed      same        bad         bad
  5s bob       held        !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
  64s opal     same        extend      extend       progress    progress      free        failed      same        bad         bad
  65s opal     !expired    !expired    extend       !expired    progress      !expired    !expired    !expired    bad         bad
  65s bob      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

taken over after the deadline: 0s acquire ann; 60s takeover opal
  60s ann      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         bad         bad

taken over, then released: 0s takeover opal; 5s release opal
  5s opal      !released   !released   !released    !released   !released     same        same        !released   bad         bad
  5s bob       +released   !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke

released, then held by another: 0s acquire ann; 5s release ann; 6s acquire bob
  6s ann       !released   !released   !released    !released   !released     same        same        bad         bad         bad

failed, then held by another: 0s acquire ann; 5s release+failed ann; 6s acquire bob
  6s ann       !released   !released   !released    !released   !released     same        same        bad         bad         bad

expired, then held by another: 0s acquire ann; 60s acquire bob
  60s ann      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         bad         bad
  60s bob      same        extend      extend       progress    progress      free        failed      bad         bad         bad

expired, then released by another: 0s acquire ann; 60s acquire bob; 61s release bob
  61s ann      !superseded !superseded !superseded  !superseded !superseded   !superseded !superseded bad         bad         bad

released, then expired by another: 0s acquire ann; 5s release ann; 6s acquire bob
  66s ann      !released   !released   !released    !released   !released     same        same        bad         bad         bad
  66s bob      !expired    !expired    extend       !expired    progress      !expired    !expired    bad         bad         bad
  66s eve      +expired    !unknown    !unknown     !unknown    !unknown      !unknown    !unknown    take        reserve     revoke
`

// TestTheLawOfOwnership checks every cell of the table.
func TestTheLawOfOwnership(t *testing.T) {
	var verbs []string
	var situation, story string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "asked":
			verbs = fields[2:]
		case !strings.HasPrefix(line, " "):
			situation, story, _ = strings.Cut(strings.TrimSpace(line), ":")
		default:
			at, who, cells := fields[0], fields[1], fields[2:]
			if len(cells) != len(verbs) {
				t.Fatalf("%q: %d answers, %d verbs", line, len(cells), len(verbs))
			}
			d, err := time.ParseDuration(at)
			if err != nil {
				t.Fatal(err)
			}
			for i, verb := range verbs {
				t.Run(situation+"/"+at+"/"+who+"/"+verb, func(t *testing.T) {
					if verb == "reserve" {
						verb = "reserve:zoe"
					}
					expect(t, play(t, story), ask(verb, who), after(d), cells[i])
					if rider, is := strings.CutPrefix(verb, "report"); is {
						expect(t, play(t, story), ask("checkpoint"+rider, who), after(d), cells[i])
					}
				})
			}
		}
	}
}

// expect applies one request, and compares the answer with a cell of the table
// and the record with that answer.
func expect(t *testing.T, rec tenure.Record, q tenure.Request, now time.Time, cell string) {
	t.Helper()
	next, changed, err := tenure.Apply(rec, q, now)
	want, wantChanged := clone(rec), true
	n := len(rec.History) - 1
	switch cell {
	case "same":
		wantChanged = false
	case "extend":
		want.Renewed, want.Deadline = now, now.Add(rec.TTL)
	case "progress":
		want.ProgressAt = now
		if q.Verb == tenure.Report {
			want.Progress = q.Progress
		} else {
			want.Checkpoint = q.Checkpoint
		}
	case "free":
		want.State, want.Ended, want.Deadline, want.Succeeded = tenure.Free, tenure.EndReleased, now, rec.Acquired
		want.History[n].Ended, want.History[n].Finished = tenure.EndReleased, now
	case "failed":
		want.State, want.Ended, want.Deadline, want.HoldUntil = tenure.Free, tenure.EndFailed, now, time.Time{}
		want.History[n].Ended, want.History[n].Finished = tenure.EndFailed, now
	case "take":
		want = transferred(rec, next, q, now, tenure.Held, tenure.Operator)
	case "reserve":
		want = transferred(rec, next, q, now, tenure.Reserved, tenure.Operator)
	case "revoke":
		q.Owner, q.Instance, q.TTL = "", "", 0
		want = transferred(rec, next, q, now, tenure.Free, tenure.Cancelled)
	default:
		if cause, ok := strings.CutPrefix(cell, "+"); ok {
			if tenure.Cause(cause) == tenure.Handoff {
				q.Actor, q.Note = rec.Actor, rec.Note
			}
			want = transferred(rec, next, q, now, tenure.Held, tenure.Cause(cause))
			break
		}
		wantChanged = false
		wantRefusal(t, err, rec, q, now, cell)
		err = nil
	}
	if err != nil || changed != wantChanged {
		t.Errorf("got changed %v, %v; want %s", changed, err, cell)
	}
	if !reflect.DeepEqual(next, want) {
		t.Errorf("%s: the record is\n%+v, want\n%+v", cell, next, want)
	}
}

// transferred returns the record after a transfer. It takes the end of the term
// before from got: TestEveryTermEndsAsItDid checks that.
func transferred(rec, got tenure.Record, q tenure.Request, now time.Time, state tenure.State, cause tenure.Cause) tenure.Record {
	want := clone(rec)
	if n := len(rec.History); n > 0 && len(got.History) > n {
		want.History[n-1].Ended, want.History[n-1].Finished = got.History[n-1].Ended, got.History[n-1].Finished
	}
	want.Key, want.Token, want.Grant = key, max(rec.Token+1, fence.Token(now.UnixMicro())), q.Secret.Grant()
	want.Owner, want.Instance, want.Actor, want.Note = q.Owner, q.Instance, q.Actor, q.Note
	want.State, want.Cause, want.Ended = state, cause, ""
	want.Acquired, want.Renewed, want.Deadline, want.TTL = now, now, now.Add(q.TTL), q.TTL
	want.HoldUntil, want.Progress, want.ProgressAt = time.Time{}, "", time.Time{}
	if state == tenure.Held {
		want.Terms++
	}
	want.History = append(want.History, tenure.Term{
		Token: want.Token, Grant: want.Grant, Owner: q.Owner, Instance: q.Instance, State: state, Cause: cause, Actor: q.Actor, Note: q.Note, Acquired: now,
	})
	return want
}

func wantRefusal(t *testing.T, err error, rec tenure.Record, q tenure.Request, now time.Time, cell string) {
	t.Helper()
	var held *tenure.HeldError
	var not *tenure.NotOwnedError
	switch {
	case cell == "bad":
		if !errors.Is(err, fence.ErrInvalid) || errors.As(err, &held) || errors.As(err, &not) {
			t.Errorf("got %v, want it invalid", err)
		}
	case strings.HasPrefix(cell, "!"):
		if !errors.As(err, &not) || !errors.Is(err, tenure.ErrNotOwned) || errors.Is(err, tenure.ErrHeld) || errors.Is(err, fence.ErrInvalid) {
			t.Fatalf("got %v, want a NotOwnedError and nothing else", err)
		}
		want := &tenure.NotOwnedError{Grant: q.Secret.Grant(), Record: rec, Why: tenure.Why(cell[1:]), Now: now}
		if !reflect.DeepEqual(not, want) {
			t.Errorf("its facts are\n%+v, want\n%+v", not, want)
		}
	default:
		if !errors.As(err, &held) || !errors.Is(err, tenure.ErrHeld) || errors.Is(err, tenure.ErrNotOwned) || errors.Is(err, fence.ErrInvalid) {
			t.Fatalf("got %v, want a HeldError and nothing else", err)
		}
		until := rec.Deadline
		if cell == "hold" {
			until = rec.HoldUntil
		}
		want := &tenure.HeldError{Record: rec, Why: tenure.Why(cell), Until: until, Now: now}
		if !reflect.DeepEqual(held, want) {
			t.Errorf("its facts are\n%+v, want\n%+v", held, want)
		}
		if held.Remaining() != until.Sub(now) || held.Remaining() <= 0 {
			t.Errorf("%s remain, want more than nothing", held.Remaining())
		}
	}
}

// clone returns a deep copy of a record.
func clone(r tenure.Record) tenure.Record {
	r.History = append([]tenure.Term(nil), r.History...)
	r.Guards = append([]string(nil), r.Guards...)
	return r
}
