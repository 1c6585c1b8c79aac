package sim

import (
	"errors"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// took records that the mark of a resource moves, and checks law 3 for it.
func (r *resource) took(a act) {
	w, s := r.w, a.stamp
	switch {
	case s.Key != r.key:
		w.fail(FairRefusal, "%s belongs to %s and admitted a stamp for %s", r, r.key, s.Key)
	case s.Token < r.shadow.Token:
		w.fail(WritesInOrder, "%s admitted token %s after %s", r, short(s.Token), short(r.shadow.Token))
	case s.Token == r.shadow.Token && s.Grant != r.shadow.Grant:
		w.fail(
			WritesInOrder, "%s admitted token %s of two grants, %s and %s", r, short(s.Token),
			brief(r.shadow.Grant), brief(s.Grant),
		)
	}
	if next := s.Mark(); s.Token > r.shadow.Token || s.Seq > r.shadow.Seq {
		r.shadow = next
	}
	if !a.write {
		w.cover("fence", "raised")
		w.say(r.name, "raised to %s", short(s.Token))
	}
}

// wroteBy records that a write takes effect. It checks law 3, and that no older
// owner overwrites a version that a newer holder has read.
func (r *resource) wroteBy(a act) {
	w, s := r.w, a.stamp
	r.took(act{stamp: s, write: true})
	if r.wrote.Grant == s.Grant && r.wrote.Token == s.Token && s.Seq > 0 && s.Seq <= r.wrote.Seq {
		w.fail(WritesInOrder, "%s admitted write %d of grant %s after write %d", r, s.Seq, brief(s.Grant), r.wrote.Seq)
	}
	if a.version != blindly && r.content.version != a.version && r.content.by.Grant != s.Grant {
		w.fail(
			LostUpdate,
			"%s was written by token %s, which had read version %d; version %d, by token %s, is lost",
			r, short(s.Token), a.version, r.content.version, short(r.content.by.Token),
		)
	}
	seq := max(s.Seq, r.wrote.Seq)
	if r.wrote.Grant != s.Grant || r.wrote.Token != s.Token {
		seq = s.Seq
	}
	r.wrote = s
	r.wrote.Seq = seq
	r.content.version++
	r.content.by = s
	w.cover("fence", "written")
	w.say(r.name, "written by token %s, write %d: version %d", short(s.Token), s.Seq, r.content.version)
}

// refused checks a refusal against the rule of fences.
func (r *resource) refused(a act, err error) {
	_, want := r.shadow.Admit(a.stamp)
	if !a.write {
		_, want = r.shadow.Raise(a.stamp)
	}
	if want == nil {
		r.w.fail(
			FairRefusal,
			"%s refused token %s, write %d, although the newest it has seen is %s, write %d: %v", r,
			short(a.stamp.Token), a.stamp.Seq, short(r.shadow.Token), r.shadow.Seq, err,
		)
	}
	r.w.say(r.name, "refuses token %s: %s", short(a.stamp.Token), refusalName(err))
}

// coverAnswer counts the kind of a guard's answer.
func (r *resource) coverAnswer(err error) {
	if err != nil {
		r.w.cover("fence", refusalName(err))
	}
}

func refusalName(err error) string {
	switch {
	case errors.Is(err, fence.ErrStale):
		return "stale"
	case errors.Is(err, fence.ErrCollision):
		return "collision"
	case errors.Is(err, fence.ErrRepeated):
		return "repeated"
	case errors.Is(err, fence.ErrWrongKey):
		return "wrong key"
	case errors.Is(err, guard.ErrBusy):
		return "busy"
	case errors.Is(err, store.ErrUnknown):
		return "unknown"
	}
	return err.Error()
}
