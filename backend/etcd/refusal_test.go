package etcd

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// TestARefusalTellsTheDeadlineAsItIs, also to a store that has read the key
// just before it was granted and renewed.
func TestARefusalTellsTheDeadlineAsItIs(t *testing.T) {
	t.Parallel()
	c := testenv.Etcd(t)
	client := dial(t, c)
	holder, asker := open(t, client, c.Prefix()), open(t, client, c.Prefix())
	const key = "refusal/deadline"
	before := claim(key, "bob")
	must(t, asker, before)
	must(t, asker, then(tenure.Release, before))
	mine := claim(key, "ann")
	must(t, holder, mine)
	for range 20 {
		renewed := must(t, holder, then(tenure.Renew, mine))[0].Record.Deadline
		var held *tenure.HeldError
		if a := resolve(t.Context(), asker, claim(key, "bob")); !errors.As(a.Err, &held) {
			t.Fatalf("a key that is held: %v", a.Err)
		}
		if held.Until.Before(renewed) || held.Record.Deadline.Before(renewed) {
			t.Fatalf("it is held until %s, and the refusal says %s", renewed, held.Until)
		}
	}
}
