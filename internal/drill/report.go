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
	NotDone   Result = "not_done"  // it could not be tried: nothing is proved
)

// Step is one thing that was tried.
type Step struct {
	// Name is "scene/step". Names stay as they are.
	Name string
	// Tried, Expected and Happened are for people.
	Tried, Expected, Happened string
	Result                    Result
	// Unknown is set when a step was not done because the store did not answer.
	Unknown bool
	// Before and After are the content of the file around a stale write that changed it; Lost is whose newer result is gone by it, if there was one.
	Before, After, Lost string
	// Metric is set when what was tried is to find something in the metrics.
	Metric *Movement
}

// Scene is one story: its steps, and who held its key when.
type Scene struct {
	Name, Story string
	Key         string
	Steps       []Step
	Terms       []Term
	// Metrics are, at the end of a stage, those of all processes together; Record is then what the store says of the key, at its time Now. Only of a staged drill.
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
	// Finished is when it ended, or when the scene did. Ended is empty if the key was still held.
	Finished time.Time
	Ended    tenure.End
	// Absent are the times in which the owner was stopped, cut off or dead; Refused are those at which something it tried was refused.
	Absent  []Span
	Refused []time.Time
}

// Span is a time from and to; To is zero if it has no end.
type Span struct{ From, To time.Time }

// Report is what came out of a drill.
type Report struct {
	// Keys is the prefix of all keys of this drill, Dir where its files are, or were.
	Keys, Dir string
	TTL       time.Duration
	Guarded   bool
	Processes int
	// Began is on the store's clock.
	Began  time.Time
	Took   time.Duration
	Scenes []Scene
	// Left names keys that are still held after the clean-up, because the store did not answer.
	Left []string
}

// Count is how many steps ended with a result.
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

// Good reports whether everything was tried and happened as it should.
func (r *Report) Good() bool {
	return len(r.Steps()) > 0 && r.Count(OK) == len(r.Steps())
}

// Unanswered reports whether nothing went wrong but that the store did not answer.
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
