// Package guardtest is the conformance suite of guarded resources.
//
// A guard that passes it keeps the law of writing. It decides as
// [fence.Mark.Admit] does. The check and the write are one step. A refused call
// changes nothing.
//
// A test hooks up a guard with a [Harness] and one call:
//
//	func TestConformance(t *testing.T) {
//		make := func(t testing.TB) guardtest.Resource { … }
//		guardtest.Run(t, guardtest.Harness{Make: make})
//	}
//
// [Memory] is the reference. [Failures] returns the checks that a guard fails,
// so that a test can show that the suite catches a guard broken on purpose.
// [Law3] judges a history that was recorded elsewhere, for example by several
// processes.
//
// # Goroutines
//
// The races start 12 writers on 4 handles, and 2 readers. All of them have
// ended before the history is judged. The arena's mutex guards the history. One
// atomic counter is the clock of all events.
package guardtest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
)

// Harness connects the suite with one kind of guard.
type Harness struct {
	// Make makes a resource without content and without a mark. It shares
	// nothing with other resources. Make registers its own clean-up with
	// t.Cleanup.
	Make func(t testing.TB) Resource
	// MarkLeads says that readers may see the mark advance a moment before the
	// content. In no guard is the mark behind the content. Leave it false if
	// readers see both change in one step.
	MarkLeads bool
	// SideBySide runs the checks in parallel. Several of them then call Make at
	// once.
	SideBySide bool
	// Slow says that each call is a request to a distant service. The suite
	// then repeats less, but leaves nothing out, and runs its checks in
	// parallel.
	Slow bool
	// Large is the size of the largest payload, in bytes. The default is 4 MiB
	// and a byte.
	Large int
}

// Resource is one guarded resource.
type Resource struct {
	// Open opens another handle on the resource, as another process would.
	Open func(t testing.TB) Handle
	// Read returns the content as ordinary readers get it, and whether there is
	// any.
	Read func(ctx context.Context) ([]byte, bool, error)
	// Signed opens another handle, which admits only stamps that one of these
	// keys has signed. It is nil if the guard takes no keys.
	Signed func(t testing.TB, keys *signed.Keys) Handle
}

// Handle is one open guard and how to write through it.
type Handle struct {
	guard.Guard
	// Write replaces the content if the stamp is admitted.
	Write func(ctx context.Context, stamp fence.Stamp, payload []byte) error
	// Stream is Write from a reader. The guard decides after it has read
	// everything. It is nil if the guard has no such write.
	Stream func(ctx context.Context, stamp fence.Stamp, r io.Reader) error
}

// Artifact makes the handle of a guard whose writes replace the whole content.
func Artifact(a guard.Artifact) Handle {
	stream := func(ctx context.Context, stamp fence.Stamp, r io.Reader) error {
		_, err := a.Write(ctx, stamp, r)
		return err
	}
	return Handle{
		Guard: a,
		Write: func(ctx context.Context, stamp fence.Stamp, payload []byte) error {
			return stream(ctx, stamp, bytes.NewReader(payload))
		},
		Stream: stream,
	}
}

// many returns how often to repeat something: full, or few if the guard is
// slow.
func (h Harness) many(full, few uint64) uint64 {
	if h.Slow {
		return few
	}
	return full
}

// Run runs every check as a subtest of t.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if h.Slow || h.SideBySide {
				t.Parallel()
			}
			c.run(t, h)
		})
	}
}

// check is one promise, and the function that tries it.
type check struct {
	name string
	run  func(t testing.TB, h Harness)
}

var checks = []check{
	{"a fresh resource has no mark and no content", fresh},
	{"an admitted write is what readers see", contents},
	{"a mark outlives its handle", reopened},
	{"handles share one mark", shared},
	{"every row of the law through Write", tableOfWrites},
	{"every row of the law through Raise", tableOfRaises},
	{"an invalid stamp changes nothing", invalidStamps},
	{"a guard with keys admits only stamps that were issued", issuedStamps},
	{"a raise before the first read shuts the old owner out", raisedBeforeReading},
	{"a raise writes nothing", raiseWritesNothing},
	{"raising twice is the same as once", raisedTwice},
	{"numbered writes are admitted once and in order", numbered},
	{"a late write of one's own never lands after a newer one", numberedRace},
	{"rekey moves the resource and keeps the floor", rekeyed},
	{"a reset takes back a mark that was made up", reset},
	{"a rekey without a reason changes nothing", rekeyedBadly},
	{"a cancelled call changes nothing", cancelled},
	{"a broken reader changes nothing", brokenReader},
	{"a write overtaken while reading is refused", overtaken},
	{"a write can be cancelled while reading", cancelledWhileReading},
	{"a guard that counts counts admitted writes", counted},
	{"a write made anyway keeps the mark", writtenAnyway},
	{"a write made anyway keeps a newer owner's mark", overtakenAnyway},
	{"law 3 with rising tokens", risingRace},
	{"law 3 with falling tokens", fallingRace},
	{"law 3 with tokens in any order", shuffledRace},
	{"random sequences decide as the law does", random},
}
