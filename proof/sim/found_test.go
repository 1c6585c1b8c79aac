package sim

import (
	"testing"
	"time"
)

// found are cases that once broke a law, and what was wrong then.
var found = []struct {
	wrong string
	c     Case
}{
	// store/cas answered an acquire that was asked again with the earliest time that it may be, so that its holder took what was left for longer than it was.
	{"a coarse clock told too much of a term", Case{Profile: "s3", Seed: 21}},
	{"a coarse clock told too much of a term, shrunk", Case{
		Profile: "s3", Seed: 150, Keys: 1, Limit: 4934325065 * time.Nanosecond,
		Never: []Fault{LostRequest, PausedSend, Crash, SlowRequest, Doubled, Pause},
		Except: []Firing{
			{LostReply, 90}, {LostReply, 42}, {SlowReply, 41}, {LostReply, 45}, {LostReply, 46}, {CutOff, 4}, {LostReply, 82}, {SlowReply, 35}, {LostReply, 75},
		},
	}},
}

// TestWhatWasFoundStaysRight: seeds that broke a law before it was put right.
func TestWhatWasFoundStaysRight(t *testing.T) {
	for _, f := range found {
		if r := Run(f.c, false); r.Broken != nil {
			t.Errorf("%s: %v", f.wrong, r.Broken)
		}
	}
}
