package worktest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/work"
)

// differ says in what got is not want; "" if it is. Nil and empty slices are the same; times must be the same moment, as ledgers keep times.
func differ(want, got any) string {
	return differValues("", reflect.ValueOf(want), reflect.ValueOf(got))
}

func differValues(field string, want, got reflect.Value) string {
	if want.Type() != got.Type() {
		return fmt.Sprintf("%s is a %s, not a %s", field, got.Type(), want.Type())
	}
	if want.Type() == reflect.TypeFor[time.Time]() {
		w, g := want.Interface().(time.Time), got.Interface().(time.Time)
		if !w.Equal(g) {
			return fmt.Sprintf("%s is %s, not %s", field, g.Format(time.RFC3339Nano), w.Format(time.RFC3339Nano))
		}
		if flaw := badTime(g); flaw != "" && !g.IsZero() {
			return field + " " + flaw
		}
		return ""
	}
	switch want.Kind() {
	case reflect.Pointer:
		return differValues(field, want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			if d := differValues(strings.TrimPrefix(field+"."+want.Type().Field(i).Name, "."), want.Field(i), got.Field(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice:
		if want.Type().Elem().Kind() == reflect.Uint8 {
			if w, g := want.Bytes(), got.Bytes(); !bytes.Equal(w, g) {
				return fmt.Sprintf("%s is %.60q, not %.60q", field, g, w)
			}
			return ""
		}
		if want.Len() != got.Len() {
			return fmt.Sprintf("%s has length %d, not %d: %+v, not %+v", field, got.Len(), want.Len(), got, want)
		}
		for i := range want.Len() {
			if d := differValues(fmt.Sprintf("%s[%d]", field, i), want.Index(i), got.Index(i)); d != "" {
				return d
			}
		}
		return ""
	}
	if !want.Equal(got) {
		return fmt.Sprintf("%s is %#v, not %#v", field, got.Interface(), want.Interface())
	}
	return ""
}

// differentErrors says how the error of an answer is not the law's, with all the facts a caller may use; "" if it is.
func differentErrors(want, got error) string {
	switch {
	case want == nil && got == nil:
		return ""
	case want == nil:
		return "refused (" + got.Error() + "), the law allows it"
	case got == nil:
		return "allowed, the law refuses it: " + want.Error()
	}
	for _, d := range []string{
		sameType[*fence.StaleError](want, got), sameType[*fence.RefusedError](want, got), sameType[*work.StateError](want, got),
		sameType[*work.NotFoundError](want, got), sameType[*work.ConflictError](want, got), sameType[*work.LimitError](want, got),
	} {
		if d != "" {
			return d
		}
	}
	for _, target := range []error{work.ErrStale, fence.ErrCollision, work.ErrState, work.ErrNotFound, work.ErrConflict, work.ErrInvalid, work.ErrUnknown} {
		if errors.Is(want, target) != errors.Is(got, target) {
			return "the error is " + got.Error() + ", the law's is " + want.Error()
		}
	}
	return ""
}

// sameType says how got is not the typed error that want is.
func sameType[E error](want, got error) string {
	var w, g E
	if !errors.As(want, &w) {
		return ""
	}
	if !errors.As(got, &g) {
		return fmt.Sprintf("the error is %T %v, not a %T: %v", got, got, w, w)
	}
	if refused, ok := any(w).(*fence.RefusedError); ok {
		return differ(refused.Presented, any(g).(*fence.RefusedError).Presented)
	}
	return differ(w, g)
}

// badTime says why a time is not as ledgers keep times: UTC, whole microseconds.
func badTime(at time.Time) string {
	switch {
	case at.IsZero():
		return "is not set"
	case at.Location() != time.UTC:
		return "is in the zone " + at.Location().String() + ", not in UTC"
	case at.Nanosecond()%1000 != 0:
		return "has fractions of a microsecond: use tenure.Time"
	}
	return ""
}
