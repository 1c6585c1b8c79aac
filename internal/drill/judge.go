package drill

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// The judges. Each judges one outcome by the laws. They are pure functions:
// they know nothing but their arguments.

// verdict is a judge's answer.
type verdict struct {
	result              Result
	happened            string
	unknown             bool
	busy                bool // the machine was too slow for it to prove anything: try again
	before, after, lost string
	bounced             bool // a stale write was refused
}

func ok(format string, args ...any) verdict {
	return verdict{result: OK, happened: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) verdict {
	return verdict{result: Failed, happened: fmt.Sprintf(format, args...)}
}

func notDone(f *failure) verdict {
	return verdict{result: NotDone, happened: f.Message, unknown: f.Kind == kindUnknown}
}

// tooBusy is the verdict on a step that a slow machine has spoilt. A lease ran
// out although its owner was at work, or a moment passed unseen.
func tooBusy(format string, args ...any) verdict {
	return verdict{
		result: NotDone, busy: true,
		happened: fmt.Sprintf(format, args...) + ": this machine is too busy to tell; try a longer --ttl",
	}
}

// then judges the next part of a step, if everything was OK so far.
func (v verdict) then(next func() verdict) verdict {
	if v.result != OK {
		return v
	}
	n := next()
	if n.result == OK {
		n.happened = v.happened + ", " + n.happened
	}
	return n
}

// granted wants a grant of the given cause. Its token must be above the
// previous owner's. After an expiry it must not come before that owner's
// deadline.
func granted(r reply, cause tenure.Cause, previous tenure.Record) verdict {
	rec := r.Record
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err != nil:
		return failed("refused (%s)", r.Err.brief())
	case !previous.IsZero() && rec.Token <= previous.Token:
		return failed("granted with token %d, not above %d", rec.Token, previous.Token)
	case cause == tenure.Expired && rec.Acquired.Before(previous.Deadline):
		return failed("granted %s before %s's deadline", seconds(previous.Deadline.Sub(rec.Acquired)), previous.Owner)
	case rec.Cause != cause:
		return failed("granted (%s), which is not how it came about", rec.Cause)
	case cause == tenure.Expired:
		return ok("granted (expired) %s after %s's deadline",
			seconds(rec.Acquired.Sub(previous.Deadline)), previous.Owner)
	}
	return ok("granted (%s)", cause)
}

// held wants an acquire refused because the grant mine holds the key.
func held(r reply, mine tenure.Record) verdict {
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err == nil && r.Record.Cause == tenure.Expired &&
		r.Record.Token > mine.Token && !r.Record.Acquired.Before(mine.Deadline):
		return tooBusy("%s's own lease ran out", the(mine.Owner))
	case r.Err == nil:
		return failed("granted, while another held it")
	case r.Err.Kind != kindHeld || r.Err.Why != tenure.WhyHeld || r.Err.Token != mine.Token:
		return failed("refused (%s, token %d)", r.Err.brief(), r.Err.Token)
	}
	return ok("refused (%s)", r.Err.brief())
}

// notOwned wants an old owner's request refused, for one of these reasons.
func notOwned(r reply, whys ...tenure.Why) verdict {
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err == nil:
		return failed("accepted, although it is stale")
	case r.Err.Kind != kindNotOwned:
		return failed("refused, but as %s", r.Err.brief())
	case !slices.Contains(whys, r.Err.Why):
		return failed("refused, but as %s instead of %s", r.Err.brief(), spoken(string(whys[0])))
	}
	return ok("refused (%s)", r.Err.brief())
}

// holds wants the record to be still that of a grant: held, alive, and with a
// deadline no earlier than before.
func holds(rec, mine tenure.Record, now time.Time) verdict {
	switch {
	case rec.Token != mine.Token || rec.Grant != mine.Grant:
		return failed("the key went from %s to %s", the(mine.Owner), the(rec.Owner))
	case rec.State == tenure.Held && !rec.Deadline.Before(mine.Deadline) && !rec.Alive(now):
		return tooBusy("%s's own lease ran out", the(mine.Owner))
	case rec.State != tenure.Held || rec.Deadline.Before(mine.Deadline):
		return failed("%s's lease was ended or cut short by it", the(mine.Owner))
	}
	return ok("%s still holds it", the(mine.Owner))
}

// free wants the key to be free, and its newest token to be the old one.
func free(rec tenure.Record, token fence.Token, now time.Time) verdict {
	if rec.StateAt(now) != tenure.Free || rec.Token != token {
		return failed("the key went to %s", the(rec.Owner))
	}
	return ok("the key is free")
}

// accepted wants a request of the present owner carried out.
func accepted(r reply, how string) verdict {
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err != nil && r.Err.Kind == kindNotOwned && r.Err.Why == tenure.WhyExpired:
		return tooBusy("its own lease ran out")
	case r.Err != nil:
		return failed("refused (%s)", r.Err.brief())
	}
	return ok("%s", how)
}

// written wants an owner's write admitted, and its text in the file.
func written(r reply, text, after string) verdict {
	if v := accepted(r, "written"); v.result != OK {
		return v
	}
	if after != text {
		return failed("accepted, but the file holds %q", after)
	}
	return ok("written")
}

// bounced wants a write refused as stale because another holds the key, and the
// file unchanged.
func bounced(r reply, before, after, holder string) verdict {
	switch {
	case before != after && r.Err != nil:
		return verdict{result: Corrupted, happened: "refused, and yet the file changed", before: before, after: after}
	case before != after && ownerOf(before) == holder:
		return verdict{
			result: Corrupted, happened: "written over " + the(holder) + "'s result",
			before: before, after: after, lost: holder,
		}
	case before != after:
		return verdict{
			result: Corrupted, happened: "written, although it is " + the(holder) + "'s turn",
			before: before, after: after,
		}
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err == nil:
		return failed("accepted, although it is stale")
	case r.Err.Kind != kindStale:
		return failed("refused, but as %s", r.Err.brief())
	}
	v := ok("refused by the fence, file untouched")
	v.bounced = true
	return v
}

// conflict wants a write over HTTP refused as stale with status 409, and the
// service's file unchanged.
func conflict(r reply, before, after, holder string) verdict {
	v := bounced(r, before, after, holder)
	switch {
	case v.result != OK:
		return v
	case r.Status != http.StatusConflict:
		return failed("refused, but with status %d", r.Status)
	}
	v.happened = fmt.Sprintf("%d (%s), file untouched", r.Status, r.Err.brief())
	return v
}

// whole wants the file unchanged after its writer died.
func whole(before, after string) verdict {
	if before != after {
		return failed("the file holds %q", after)
	}
	return ok("the file is as before")
}

// over wants a lease's context to have ended for one of these reasons.
func over(r reply, losses ...string) verdict {
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Loss == "":
		return failed("not over")
	case !slices.Contains(losses, r.Loss):
		return failed("over, but as %s", spoken(r.Loss))
	}
	return ok("over (%s)", spoken(r.Loss))
}

// inTime wants a lease's context to have ended before the store's deadline. The
// deadline is given on this machine's clock. Its true time is that, or later by
// at most doubt.
func inTime(r reply, deadline time.Time, doubt time.Duration) verdict {
	if v := over(r, "unreachable", "expired"); v.result != OK {
		return v
	}
	late := r.At.Sub(deadline)
	switch {
	case late < 0:
		return ok("over (%s) %s before the deadline", r.Loss, seconds(-late))
	case late < r.Stall:
		return tooBusy("nothing ran for %s", seconds(r.Stall))
	case late < r.Stall+doubt:
		return tooBusy("the store took %s to tell the time", seconds(doubt))
	}
	return failed("over (%s) only %s after the deadline", r.Loss, seconds(late))
}

// once wants one grant for an acquire whose first answer was lost. Asked again,
// the store must return the same token.
func once(r reply, rec tenure.Record) verdict {
	switch {
	case r.Err.silent():
		return notDone(r.Err)
	case r.Err != nil:
		return failed("refused (%s)", r.Err.brief())
	case len(r.Tokens) < 2:
		return notDone(&failure{Kind: kindFailed, Message: "no reply was lost"})
	case slices.Min(r.Tokens) != slices.Max(r.Tokens),
		r.Record.Token != r.Tokens[0], rec.Token != r.Tokens[0], rec.Terms != 1:
		return failed("granted %d times", max(2, int(rec.Terms)))
	}
	return ok("asked again: same token, granted once")
}

// oneWinner wants exactly one of many contenders granted, and all others told
// of its token.
func oneWinner(replies []reply, rec tenure.Record) verdict {
	var winners []fence.Token
	for _, r := range replies {
		switch {
		case r.Err == nil:
			winners = append(winners, r.Record.Token)
		case r.Err.silent():
			return notDone(r.Err)
		case r.Err.Kind != kindHeld:
			return failed("one was refused, but as %s", r.Err.brief())
		}
	}
	if len(winners) != 1 {
		return failed("%d of %d were granted", len(winners), len(replies))
	}
	for _, r := range replies {
		if r.Err != nil && r.Err.Token != winners[0] {
			return failed("one was told of token %d, not of the winner's", r.Err.Token)
		}
	}
	if rec.Token != winners[0] || rec.Terms != 2 {
		return failed("one was told so, but the key has had %d owners", rec.Terms)
	}
	return ok("1 granted, %d refused (held by another)", len(replies)-1)
}

// raised wants an operator's takeover to have raised every fence that the
// holder named.
func raised(r reply, named int) verdict {
	switch {
	case r.Unraised > 0 || r.Raised != named:
		return failed("%d of %d fences raised", r.Raised, named)
	case named == 0:
		return ok("no fence was named")
	}
	return ok("fence raised")
}

// result is the text that an owner writes: one line with its name.
func result(n int, owner string, token fence.Token) string {
	return fmt.Sprintf("result %d by %s, token %d", n, owner, token)
}

// ownerOf is the owner that wrote a result.
func ownerOf(text string) string {
	_, rest, _ := strings.Cut(text, " by ")
	owner, _, _ := strings.Cut(rest, ",")
	return owner
}

// the names an owner in a sentence.
func the(owner string) string {
	switch owner {
	case "":
		return "nobody"
	case "operator":
		return "the operator"
	}
	return owner
}

// seconds prints a duration in seconds: with two decimals, or three if it is
// short.
func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.3fs", d.Seconds())
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}
