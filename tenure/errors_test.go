package tenure_test

import (
	"testing"
	"time"

	"github.com/croft-dev/croft/tenure"
)

// TestRefusalsSayWhatToDo checks the messages that people read after a refusal.
func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		story string
		at    time.Duration
		verb  string
		who   string
		want  string
	}{
		{"0s acquire ann", 18 * time.Second, "acquire", "bob", `"reports/daily" is held by ann (token 1772366400000000) for another 42s unless renewed`},
		{"0s acquire ann", time.Minute - 1500*time.Microsecond, "acquire", "bob", `"reports/daily" is held by ann (token 1772366400000000) for another 2ms unless renewed`},
		{"0s acquire ann", 18*time.Second + 20*time.Millisecond, "acquire", "bob", `"reports/daily" is held by ann (token 1772366400000000) for another 42s unless renewed`},
		{"5s acquire ann", 4 * time.Second, "acquire", "bob", `"reports/daily" is held by ann (token 1772366405000000) for another 1m0s unless renewed`},
		{"0s takeover opal", 0, "acquire", "bob", `"reports/daily" is held by opal (token 1772366400000000) for another 1m0s unless renewed`},
		{"0s reserve:ann opal", 18 * time.Second, "acquire", "bob", `"reports/daily" is reserved for ann for another 42s`},
		{"0s acquire+hold ann; 5s release ann", 5 * time.Second, "acquire", "bob", `"reports/daily" was done by ann and is on hold for another 59m55s`},
		{"0s acquire+daily ann; 5s release ann", time.Hour, "acquire+daily", "bob", `"reports/daily" has been done in this period; it is due again in 11h0m0s`},
		{"0s acquire+once ann; 5s release ann", time.Hour, "acquire+once", "bob", `"reports/daily" has been done, and is to be done once`},

		{"", 0, "renew", "ann", `not owned: the store remembers nothing of this lease; stop this work and acquire again`},
		{"0s acquire ann; 5s release ann", 5 * time.Second, "renew", "ann", `not owned: the lease on "reports/daily" was released; acquire it again to go on`},
		{"0s acquire ann", 90 * time.Second, "renew", "ann", `not owned: the lease on "reports/daily" expired 30s ago; stop this work, or resume before another is granted`},
		{"0s acquire ann; 60s acquire bob", time.Minute, "renew", "ann", `not owned: "reports/daily" was granted again; bob has token 1772366460000000; stop this work`},
		{"0s acquire ann", 0, "renew", "eve", `not owned: "reports/daily" has no such grant; ann has token 1772366400000000; stop this work`},
		{"0s acquire ann; 60s revoke opal", time.Minute, "renew", "ann", `not owned: "reports/daily" was granted again; newest token 1772366460000000; stop this work`},
		{"0s acquire ann; 5s takeover opal", 5 * time.Second, "renew", "ann", `not owned: "reports/daily" was taken over by hand by opal (because opal says so); newest token 1772366405000000; stop this work`},
		// The message names the operator who ended the term, not the newest
		// one.
		{"0s acquire ann; 5s takeover opal; 6s revoke otto", 6 * time.Second, "renew", "ann", `not owned: "reports/daily" was taken over by hand by opal (because opal says so); newest token 1772366406000000; stop this work`},
		{"0s acquire ann; 5s revoke opal; 6s acquire bob", 6 * time.Second, "release", "ann", `not owned: "reports/daily" was taken over by hand by opal (because opal says so); newest token 1772366406000000; stop this work`},

		{"0s acquire ann", 0, "revoke", "ann", `invalid secret: it has been used for another request on "reports/daily"; make a new one for each`},
	} {
		_, _, err := tenure.Apply(play(t, c.story), ask(c.verb, c.who), after(c.at))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s; %s %s at %s:\n\t%v, want\n\t%s", c.story, c.verb, c.who, c.at, err, c.want)
		}
	}
	// A store may answer without the history. Then the message names nobody,
	// rather than the wrong operator.
	bare := &tenure.NotOwnedError{Grant: secretOf("ann").Grant(), Record: play(t, "0s acquire ann; 5s takeover opal"), Why: tenure.WhyTakenOver}
	bare.Record.History = nil
	if want := `not owned: "reports/daily" was taken over by hand; newest token 1772366405000000; stop this work`; bare.Error() != want {
		t.Errorf("%v, want %s", bare, want)
	}
}
