// Package guardtest is the conformance suite of guarded resources. A guard that passes it keeps the law of writing: it decides as
// [fence.Mark.Admit] does, the check and the write are one step, and what it refuses changes nothing.
//
// A guard is hooked up with a [Harness] and one call:
//
//	func TestConformance(t *testing.T) {
//		guardtest.Run(t, guardtest.Harness{Make: func(t testing.TB) guardtest.Resource { … }})
//	}
//
// [Memory] is the reference; [Failures] tells which checks a guard fails, so that a guard broken on purpose can be shown to be caught; [Law3]
// judges a history that was recorded elsewhere, for example by several processes.
package guardtest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// Harness is how the suite reaches one kind of guard.
type Harness struct {
	// Make makes a resource that has no content and no mark, and shares nothing with others. What it must clean up it hands to t.Cleanup.
	Make func(t testing.TB) Resource
	// MarkLeads says that readers may see the mark advance a moment before the content does (the mark is never behind in any guard). Leave
	// it false where both change in one step for readers, too.
	MarkLeads bool
	// SideBySide runs the checks beside each other. Several of them call Make at
	// once then.
	SideBySide bool
	// Slow says that a call is a request to a distant service. The suite repeats
	// less, leaves nothing out, and runs its checks side by side.
	Slow bool
	// Large is the size of the largest payload tried, in bytes. Default 4 MiB and a byte.
	Large int
}

// Resource is one guarded resource.
type Resource struct {
	// Open opens another handle on the resource, as another process would.
	Open func(t testing.TB) Handle
	// Read is the content as ordinary readers get it, and whether there is any.
	Read func(ctx context.Context) ([]byte, bool, error)
	// Audit is what the resource keeps of the last Rekey, as text. Nil if it cannot be asked for.
	Audit func(ctx context.Context) (string, error)
}

// Handle is one open guard and how to write through it.
type Handle struct {
	guard.Guard
	// Write replaces the content if the stamp is admitted.
	Write func(ctx context.Context, stamp fence.Stamp, payload []byte) error
	// Stream is Write from a reader: the decision falls when all of it has been read. Nil if the guard has no such write.
	Stream func(ctx context.Context, stamp fence.Stamp, r io.Reader) error
}

// Artifact is the handle of a guard whose whole content is replaced by each write.
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

// many is how often something is repeated: in full, or where every time costs.
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

// check is one promise and how it is tried.
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
	{"law 3 with rising tokens", risingRace},
	{"law 3 with falling tokens", fallingRace},
	{"law 3 with tokens in any order", shuffledRace},
	{"random sequences decide as the law does", random},
}
