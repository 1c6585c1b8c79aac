package glance

import (
	"fmt"

	"github.com/croft-dev/croft/store/refusals"
)

// Refusal describes a refusal, without its owner, time, key and target.
func Refusal(r refusals.Refusal) string {
	text := r.Act + ": " + map[string]string{
		"stale": "stale", "collision": "the same token from two grants", "wrong_key": "it belongs to another key",
		"repeated": "late or repeated", "not_owned": "not owned", "unsure": "the store could not be asked",
	}[r.Code]
	switch {
	case r.Admitted:
		text += ", let in all the same"
	case r.Kind() == refusals.Unsure:
		text += ", refused"
	}
	if r.Newest > 0 && r.Newest != r.Token {
		text += fmt.Sprintf(", newest is %d", r.Newest)
	}
	if r.Count > 1 {
		text += fmt.Sprintf(" (%d times)", r.Count)
	}
	return text
}
