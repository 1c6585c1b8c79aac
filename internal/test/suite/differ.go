package suite

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Differ says how got differs from want, as a reader of records sees them. It
// returns "" if they are equal. Nil and empty slices are equal. Times must be
// the same moment, and in the form that [BadTime] wants.
func Differ(want, got any) string {
	return differ("", reflect.ValueOf(want), reflect.ValueOf(got))
}

func differ(field string, want, got reflect.Value) string {
	if want.Type() != got.Type() {
		return fmt.Sprintf("%s is a %s, not a %s", field, got.Type(), want.Type())
	}
	if want.Type() == reflect.TypeFor[time.Time]() {
		w, g := want.Interface().(time.Time), got.Interface().(time.Time)
		if !w.Equal(g) {
			return fmt.Sprintf("%s is %s, not %s", field, g.Format(time.RFC3339Nano), w.Format(time.RFC3339Nano))
		}
		if flaw := BadTime(g); flaw != "" && !g.IsZero() {
			return field + " " + flaw
		}
		return ""
	}
	switch want.Kind() {
	case reflect.Pointer:
		return differ(field, want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			if d := differ(strings.TrimPrefix(field+"."+want.Type().Field(i).Name, "."),
				want.Field(i), got.Field(i)); d != "" {
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
			if d := differ(fmt.Sprintf("%s[%d]", field, i), want.Index(i), got.Index(i)); d != "" {
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

// BadTime says why a time is not in the form of records: UTC and whole
// microseconds. It returns "" if it is.
func BadTime(at time.Time) string {
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
