package main

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/renewal"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// survey gathers what the records of a store tell about TTLs.
type survey struct {
	now    time.Time
	alike  map[string]*adviceView
	spaces map[string]int // kinds of names in a namespace
	// refused has the first refusal of each term: then its owner was alive.
	refused map[heldAs]time.Time
}

// heldAs names a term.
type heldAs struct {
	key   string
	token fence.Token
}

func newSurvey(now time.Time, refused []refusals.Refusal) *survey {
	s := &survey{
		now: now, alike: map[string]*adviceView{}, spaces: map[string]int{}, refused: map[heldAs]time.Time{},
	}
	for _, r := range refused {
		// The owner is known only if the grant was right. Tokens are guessed
		// easily.
		if at := (heldAs{r.Key, r.Token}); r.Owner != "" && (s.refused[at].IsZero() || r.At.Before(s.refused[at])) {
			s.refused[at] = r.At
		}
	}
	return s
}

// view returns the view that a key counts in.
func (s *survey) view(key string) *adviceView {
	space, like := fence.Namespace(key), likeness(key)
	if s.alike[like] == nil && s.spaces[space] >= mostAlike {
		like = strings.TrimPrefix(space+"/…", "/")
	}
	v := s.alike[like]
	if v == nil {
		v = &adviceView{Like: like, held: spans{count: map[int]int{}}}
		s.alike[like] = v
		s.spaces[space]++
	}
	return v
}

const (
	// mostSampled is how many keys of a kind have their history read. They have
	// up to 32 terms each.
	mostSampled = 1000
	// readAtOnce is how many histories are read at once.
	readAtOnce = 16
)

// add counts a key as the listing shows it, which may be without its history.
func (s *survey) add(rec tenure.Record) {
	v := s.view(rec.Key)
	v.Keys++
	if len(v.sample) < mostSampled {
		v.sample = append(v.sample, rec.Key)
	} else if i := rand.IntN(v.Keys); i < mostSampled {
		v.sample[i] = rec.Key // so each key has the same chance
	}
	if ttl := ttlOf(rec); ttl > 0 {
		if v.ttls[0] == 0 || ttl < v.ttls[0] {
			v.ttls[0] = ttl
		}
		v.ttls[1] = max(v.ttls[1], ttl)
		v.renewed(rec, s.now)
	}
}

// ttlOf returns the TTL that the key's owner has chosen, or 0 if an operator
// has taken, reserved or revoked the key since.
func ttlOf(rec tenure.Record) time.Duration {
	if rec.Cause == tenure.Operator || (rec.State != tenure.Held && rec.Ended == "") {
		return 0
	}
	return rec.TTL
}

// readHistories reads and counts the terms of the sampled keys. It calls count
// for each key, on several goroutines. They hold a mutex while they count.
func (s *survey) readHistories(ctx context.Context, st store.Store, count func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type look struct {
		v   *adviceView
		key string
	}
	looks := make(chan look)
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range readAtOnce {
		readers.Go(func() {
			for l := range looks {
				rec, err := st.Get(ctx, l.key)
				if err != nil {
					cancel(err)
					continue
				}
				count()
				mu.Lock()
				s.countTerms(l.v, rec)
				mu.Unlock()
			}
		})
	}
	for _, v := range s.alike {
		for _, key := range v.sample {
			if ctx.Err() == nil {
				looks <- look{v, key}
			}
		}
	}
	close(looks)
	readers.Wait()
	return context.Cause(ctx)
}

// countTerms counts the terms in a record's history. There are none if the
// store has dropped the record meanwhile.
func (s *survey) countTerms(v *adviceView, rec tenure.Record) {
	for i, term := range rec.History {
		if !isTerm(term) {
			continue
		}
		v.Terms++
		alive := i == len(rec.History)-1 && rec.Alive(s.now)
		switch {
		case alive:
			v.held.add(s.now.Sub(term.Acquired))
		case term.Ended == tenure.EndExpired || term.Ended == "":
			v.Expired++
			if pause := s.returned(rec, i); pause > 0 {
				v.Returned++
				v.pause = max(v.pause, pause)
			}
		default:
			if term.Ended == tenure.EndTakenOver {
				v.ByHand++
			}
			v.held.add(term.Finished.Sub(term.Acquired))
		}
	}
}

// isTerm reports whether a transfer gave the key to an owner for its work. It
// does not if an operator took, reserved or revoked the key.
func isTerm(t tenure.Term) bool { return t.State == tenure.Held && t.Cause != tenure.Operator }

// mostPause is the longest pause that a TTL should span, as a multiple of the
// TTL. An owner that returns later was suspended overnight, not slow.
const mostPause = 10

// returned returns how long after its last renewal the owner of an expired term
// was first heard of again, or 0 if it was not. A refusal tells, or a later
// term of the same process.
func (s *survey) returned(rec tenure.Record, i int) time.Duration {
	term, ttl := rec.History[i], ttlOf(rec)
	finished := term.Finished
	if finished.IsZero() {
		finished = rec.Deadline
	}
	heard := s.refused[heldAs{rec.Key, term.Token}]
	for _, later := range rec.History[i+1:] {
		if later.Instance != "" && later.Instance == term.Instance && isTerm(later) {
			if heard.IsZero() || later.Acquired.Before(heard) {
				heard = later.Acquired
			}
			break
		}
	}
	pause := heard.Sub(finished.Add(-ttl)) // the deadline was a TTL after the last renewal
	if heard.IsZero() || ttl == 0 || pause <= 0 || pause > mostPause*ttl {
		return 0
	}
	return pause
}

// renewed counts how the newest term was renewed: how much of its TTL was left
// at the last look, or at its end, and how late the next renewal was.
func (v *adviceView) renewed(rec tenure.Record, now time.Time) {
	end := rec.Deadline // a release sets it to the time of the release
	if rec.Alive(now) {
		end = now
	}
	since := end.Sub(rec.Renewed)
	if expired := !rec.Alive(now) && rec.Ended == ""; expired || since < 0 || since > rec.TTL {
		return
	}
	if left := 1 - since.Seconds()/rec.TTL.Seconds(); v.Left == nil || left < *v.Left {
		v.Left = &left
	}
	// A script may take a lease and never renew it. That is not late.
	late := since - renewal.Policy{TTL: rec.TTL}.Interval()
	if rec.Renewed.After(rec.Acquired) && late > v.late {
		v.late, v.lateTTL = late, rec.TTL
	}
}

var (
	uuids  = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)
	words  = regexp.MustCompile(`[0-9A-Za-z]+`)
	digits = regexp.MustCompile(`[0-9]+`)
	hex    = regexp.MustCompile(`^[0-9a-fA-F]{4,}$`)
	dates  = regexp.MustCompile(`\*([-_.:T]\*)+`) // each number in them is a * already
)

// likeness returns a key's name with a * for each part that differs from key to
// key: numbers, dates and identifiers.
func likeness(key string) string {
	like := uuids.ReplaceAllString(key, "*")
	like = words.ReplaceAllStringFunc(like, func(word string) string {
		if digits.MatchString(word) && (len(word) >= 16 || hex.MatchString(word)) {
			return "*" // an identifier
		}
		return digits.ReplaceAllString(word, "*")
	})
	return dates.ReplaceAllString(like, "*")
}

// mostAlike is how many kinds of names of one namespace are shown. All further
// ones are shown as one: they vary in ways that likeness does not see.
const mostAlike = 32

// spans counts durations in classes that are one percent wide, so that a store
// with very many terms costs little memory.
type spans struct {
	count   map[int]int // by class
	n       int
	longest time.Duration
}

const classWidth = 1.01

func (s *spans) add(d time.Duration) {
	d = max(d, 1)
	s.count[int(math.Ceil(math.Log(float64(d))/math.Log(classWidth)))]++
	s.n++
	s.longest = max(s.longest, d)
}

// quantile returns the duration that the part q of all does not exceed. It is
// at most one percent too long.
func (s *spans) quantile(q float64) time.Duration {
	rank, below := int(math.Ceil(q*float64(s.n))), 0
	for _, class := range slices.Sorted(maps.Keys(s.count)) {
		if below += s.count[class]; below >= rank {
			return min(s.longest, time.Duration(math.Pow(classWidth, float64(class))))
		}
	}
	return s.longest
}
