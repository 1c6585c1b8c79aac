package clerk

import (
	"errors"
	"iter"
	"strings"

	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Checked returns the indexes of the valid requests. It answers the others with
// their errors.
func Checked(requests []work.Request, answers []work.Answer) (todo []int) {
	for i := range requests {
		if err := requests[i].Check(); err != nil {
			answers[i].Err = err
			continue
		}
		todo = append(todo, i)
	}
	return todo
}

// CheckedSettlements is Checked for settlements.
func CheckedSettlements(settlements []work.Settlement, answers []work.EffectAnswer) (todo []int) {
	for i := range settlements {
		if err := settlements[i].Check(); err != nil {
			answers[i].Err = err
			continue
		}
		todo = append(todo, i)
	}
	return todo
}

// Failed answers the requests at the indexes in todo with an unknown outcome.
func Failed(answers []work.Answer, todo []int, err error) []work.Answer {
	for _, i := range todo {
		answers[i] = work.Answer{Err: store.Unknown(err)}
	}
	return answers
}

// FailedSettlements is Failed for settlements.
func FailedSettlements(answers []work.EffectAnswer, todo []int, err error) []work.EffectAnswer {
	for _, i := range todo {
		answers[i] = work.EffectAnswer{Err: store.Unknown(err)}
	}
	return answers
}

// Pages yields the values that next reads, one page of size at a time, until a
// page is short or limit is reached. Rows that change meanwhile may be seen or
// not. If bad is not nil, Pages yields only that error.
//
// Next returns how many rows it has read. If its error matches [ErrDamaged],
// some of the rows are damaged: Pages goes on with the others, and yields that
// error last.
func Pages[T any](size, limit int, bad error, next func(n int) (found []T, read int, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if bad != nil {
			yield(none, bad)
			return
		}
		var damage error
		for left := limit; ; {
			n := size
			if limit > 0 {
				n = min(n, left)
			}
			found, read, err := next(n)
			if errors.Is(err, ErrDamaged) {
				damage, err = errors.Join(damage, err), nil
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, v := range found {
				if !yield(v, nil) {
					return
				}
			}
			left -= read
			if read < n || limit > 0 && left <= 0 {
				break
			}
		}
		if damage != nil {
			yield(none, damage)
		}
	}
}

// Directed is a statement that lists in either direction.
type Directed struct{ oldest, newest string }

// Direct makes a Directed of one text, in which {after} and {order} stand for
// the direction.
func Direct(text string) Directed {
	return Directed{
		strings.NewReplacer("{after}", ">", "{order}", "ASC").Replace(text),
		strings.NewReplacer("{after}", "<", "{order}", "DESC").Replace(text),
	}
}

// Text returns the statement for newest first, or for oldest first.
func (d Directed) Text(newest bool) string {
	if newest {
		return d.newest
	}
	return d.oldest
}

// Last returns the ID after which the next page of items begins. It counts
// damaged items, too.
func Last(last *string, items []work.Item, damage Damage, newest bool) *string {
	further := func(id work.ID) {
		if text := string(id); last == nil || text > *last != newest {
			last = &text
		}
	}
	for _, it := range items {
		further(it.ID)
	}
	for _, d := range damage {
		further(d.Item)
	}
	return last
}
