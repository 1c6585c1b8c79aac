package sim

import "testing"

// found are cases that once broke a law. A seed says less with every change of
// the simulator. So each mended fault also has a test in its own package, and a
// mutant that brings it back.
var found = []struct {
	wrong string
	c     Case
}{
	// When an acquire was asked again, store/cas answered with the earliest
	// possible time. So the holder believed in more time than was left:
	// earliest-is-told.
	{"a coarse clock told too much of a term", Case{Profile: "s3", Seed: 81}},
	{"a coarse clock told too much of a term", Case{Profile: "s3", Seed: 116}},
	{"a coarse clock told too much of a term, shrunk", Case{
		Profile: "s3", Seed: 107, Keys: 1, Never: []Fault{SlowRequest},
		Except: []Firing{{LostRequest, 67}, {Doubled, 60}, {Doubled, 63}, {SlowReply, 35}},
	}},
	// The store forgot a lost term, and granted a late copy of its request
	// anew. Resume took the new term for the old one: resumes-anew.
	{"a lease was resumed with another token", Case{Profile: "amnesia", Seed: 1209}},
	// Bugs of the engine: period-for-all, second-queue and
	// late-refusal-ignored.
	{"a call was refused for the period of another", Case{Profile: "sweeps", Seed: 219}},
	{"a call replaced the queue of others", Case{Profile: "guards", Seed: 156}},
	{"a report was refused when its caller had left, and the lease went on", Case{Profile: "postgres", Seed: 47}},
	// The judge was wrong. It wanted a term given back that had ended before
	// the server committed it.
	{"a term that was over when it was written was to be given back", Case{Profile: "postgres", Seed: 18046}},
	// The simulator was wrong. A client had released a key, and a restored
	// store held it again. The client did not release it a second time.
	{"a key that was given back before the store was put back stood idle", Case{Profile: "restored", Seed: 14632}},
}

// These seeds broke a law once, and must not break one again.
func TestSeedsThatOnceBrokeALawHold(t *testing.T) {
	for _, f := range found {
		if r := Run(f.c, false); r.Broken != nil {
			t.Errorf("%s: %s: %v", f.wrong, f.c, r.Broken)
		}
	}
}
