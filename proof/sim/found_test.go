package sim

import "testing"

// found are cases that broke a law, and what was wrong then. A seed says less with every change of the simulator: what was put right has a test where it was put right,
// and a mutant that brings it back.
var found = []struct {
	wrong string
	c     Case
}{
	// store/cas answered an acquire that was asked again with the earliest time that it may be, so that its holder took what was left for longer than it was: earliest-is-told.
	{"a coarse clock told too much of a term", Case{Profile: "s3", Seed: 81}},
	{"a coarse clock told too much of a term", Case{Profile: "s3", Seed: 116}},
	{"a coarse clock told too much of a term, shrunk", Case{
		Profile: "s3", Seed: 107, Keys: 1, Never: []Fault{SlowRequest},
		Except: []Firing{{LostRequest, 67}, {Doubled, 60}, {Doubled, 63}, {SlowReply, 35}},
	}},
	// Resume took a term that the store had granted anew, to a late copy of the request, for the one that was lost: resumes-anew.
	{"a lease was resumed with another token", Case{Profile: "amnesia", Seed: 1209}},
	// The engine's: period-for-all, second-queue and late-refusal-ignored.
	{"a call was refused for the period of another", Case{Profile: "sweeps", Seed: 219}},
	{"a call replaced the queue of others", Case{Profile: "guards", Seed: 156}},
	{"a report was refused when its caller had left, and the lease went on", Case{Profile: "postgres", Seed: 47}},
	// The judge was wrong. A term had ended before the server committed it, and
	// the judge wanted it given back.
	{"a term that was over when it was written was to be given back", Case{Profile: "postgres", Seed: 18046}},
	// The simulator was wrong. A client had given a key back, a restored store
	// held it again, and the client did not give it back a second time.
	{"a key that was given back before the store was put back stood idle", Case{Profile: "restored", Seed: 14632}},
}

// TestWhatWasFoundStaysRight: seeds that broke a law before it was put right.
func TestWhatWasFoundStaysRight(t *testing.T) {
	for _, f := range found {
		if r := Run(f.c, false); r.Broken != nil {
			t.Errorf("%s: %s: %v", f.wrong, f.c, r.Broken)
		}
	}
}
