package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// How much of a record's history there must be.
type historyRule int

const (
	wholeHistory  historyRule = iota // as Get returns it
	historyOrNone                    // as answers and listings may leave it out
)

// differ says in which field a store's record is not the wanted one; "" if in none.
func differ(want, got tenure.Record, rule historyRule) string {
	if rule == historyOrNone && len(got.History) == 0 {
		want.History = nil
	}
	if slices.Equal(want.History, got.History) { // nearly always, and much cheaper than to look for a difference
		want.History, got.History = nil, nil
	}
	return differValues("", reflect.ValueOf(want), reflect.ValueOf(got))
}

// differValues compares values as a reader of records does: times by their moment (and they must be in UTC), an empty list like none.
func differValues(field string, want, got reflect.Value) string {
	if w, ok := want.Interface().(time.Time); ok {
		g := got.Interface().(time.Time)
		if !w.Equal(g) {
			return fmt.Sprintf("%s is %s, not %s", field, clockTime(g), clockTime(w))
		}
		if flaw := badTime(g); flaw != "" && !g.IsZero() {
			return field + " " + flaw
		}
		return ""
	}
	switch want.Kind() {
	case reflect.Struct:
		for i := range want.NumField() {
			name := want.Type().Field(i).Name
			if field != "" {
				name = field + "." + name
			}
			if d := differValues(name, want.Field(i), got.Field(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice:
		if want.Len() != got.Len() {
			return fmt.Sprintf("%s has length %d, not %d", field, got.Len(), want.Len())
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

// badTime says why a time is not as records keep times: UTC, whole microseconds.
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
