package drill

import (
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// Result grades a step.
type Result string

// The results of a step.
const (
	OK        Result = "ok"
	Failed    Result = "failed"    // something happened that the laws forbid
	Corrupted Result = "corrupted" // a stale write got through
	NotDone   Result = "not_done"  // it could not be tried, so it proves nothing
)

// Step is one try and its result.
type Step struct {
	// Name is "scene/step". Names never change.
	Name string
	// Tried, Expected and Happened are for people.
	Tried, Expected, Happened string
	Result                    Result
	// Unknown is set when a step was not done because the store did not answer.
	Unknown bool
	// Before and After are the file's content around a stale write that changed
	// it. Lost is the owner whose newer result was overwritten, if any.
	Before, After, Lost string
	// Metric is set if the step is about a metric.
	Metric *Movement
}

// Scene is one story: its steps, and the owners of its key.
type Scene struct {
	Name, Story string
	Key         string
	Steps       []Step
	Terms       []Term
	// Events are in the order of time. A staged drill has none.
	Events []Event
	// Metrics, Record and Now are set only by a staged drill, at the end of a
	// stage. Metrics are those of all processes together. Record is the key's
	// record at the store's time Now.
	Metrics Metrics
	Record  tenure.Record
	Now     time.Time
}

// Term is one owner's time with the key, on the store's clock.
type Term struct {
	Owner    string
	Token    fence.Token
	Cause    tenure.Cause
	Acquired time.Time
	// Finished is when the term ended, or when the scene did. Ended is empty if
	// the key was still held.
	Finished time.Time
	Ended    tenure.End
	// Absent are the times during which the owner was stopped, cut off or dead.
	// Refused are the times at which a request of its was refused.
	Absent  []Span
	Refused []time.Time
}

// Event is a moment in a scene, on the store's clock.
type Event struct {
	Owner string
	Kind  EventKind
	At    time.Time
}

// EventKind names what happened.
type EventKind string

// The kinds of events. Terms say when owners were granted the key.
const (
	Asked     EventKind = "asked"     // for a key that another holds; it waits
	Renewed   EventKind = "renewed"   // by the owner's client; of a process that has ended it is not known
	Left      EventKind = "left"      // stopped, cut off or killed
	Returned  EventKind = "returned"  // woken, or connected again
	Wrote     EventKind = "wrote"     // its result is in the file
	Bounced   EventKind = "bounced"   // its stale write was refused
	Refused   EventKind = "refused"   // another stale request was refused
	Overwrote EventKind = "overwrote" // its stale write got through
)

// Span is the time between From and To. To is zero if it has no end.
type Span struct{ From, To time.Time }

// Report is the outcome of a drill.
type Report struct {
	// Keys is the prefix of all keys of this drill. Dir is the folder of its
	// files, even if they have been removed.
	Keys, Dir string
	TTL       time.Duration
	Guarded   bool
	Processes int
	// Began is the start, on the store's clock.
	Began  time.Time
	Took   time.Duration
	Scenes []Scene
	// Left names keys that are still held after the clean-up, because the store
	// did not answer.
	Left []string
}

// Count returns how many steps have a result.
func (r *Report) Count(result Result) int {
	n := 0
	for _, s := range r.Steps() {
		if s.Result == result {
			n++
		}
	}
	return n
}

// Steps lists the steps of all scenes.
func (r *Report) Steps() []Step {
	var all []Step
	for _, scene := range r.Scenes {
		all = append(all, scene.Steps...)
	}
	return all
}

// Good reports whether every step was tried and is OK.
func (r *Report) Good() bool {
	return len(r.Steps()) > 0 && r.Count(OK) == len(r.Steps())
}

// Unanswered reports whether the only failures are that the store did not
// answer.
func (r *Report) Unanswered() bool {
	unknown := false
	for _, s := range r.Steps() {
		switch {
		case s.Result == OK:
		case s.Result == NotDone && s.Unknown:
			unknown = true
		default:
			return false
		}
	}
	return unknown
}
