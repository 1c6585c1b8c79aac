package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Case is everything that a run depends on. The same case gives the same run.
type Case struct {
	Profile string `json:"profile"`
	Seed    uint64 `json:"seed"`
	// Ops is the number of requests before the faults stop; 0 means 500.
	Ops int `json:"ops,omitempty"`
	// Clients and Keys are their numbers. 0 means 3 clients, and as many keys
	// as the profile says, or 3.
	Clients int `json:"clients,omitempty"`
	Keys    int `json:"keys,omitempty"`
	// Mutant names the broken variant to run. Empty means the sound code.
	Mutant string `json:"mutant,omitempty"`
	// Never are kinds of faults that are left out, Except are single faults
	// that are. Shrink fills both with faults that do not matter.
	Never  []Fault  `json:"never,omitempty"`
	Except []Firing `json:"except,omitempty"`
	// Limit ends a run at this simulated time; 0 means an hour.
	Limit time.Duration `json:"limit,omitempty"`
}

func (c Case) withDefaults() Case {
	if c.Keys == 0 {
		c.Keys = profileOf(c.Profile).Keys
	}
	if c.Ops == 0 {
		c.Ops = 500
	}
	if c.Clients == 0 {
		c.Clients = 3
	}
	if c.Keys == 0 {
		c.Keys = 3
	}
	if c.Limit == 0 {
		c.Limit = time.Hour
	}
	return c
}

// without reports whether the case leaves this fault out.
func (c *Case) without(f Firing) bool {
	return slices.Contains(c.Never, f.Fault) || slices.Contains(c.Except, f)
}

func (c Case) String() string {
	s := fmt.Sprintf("--profile %s --seed %d", c.Profile, c.Seed)
	if c.Mutant != "" {
		s += " --mutant " + c.Mutant
	}
	return s
}

// Law names a law. The number is its position in the list of promises.
type Law string

// The laws.
const (
	OneGrant       Law = "1: one grant per token, one grant per secret"
	TokensRise     Law = "2: tokens rise"
	WritesInOrder  Law = "3: no admitted write is older than one before it"
	NoEarlyGrant   Law = "4: no grant before the deadline"
	LocalDeadline  Law = "5: the holder's deadline is not later than the store's"
	OneTruth       Law = "6: the unconfirmed gives no authority and resolves to one truth"
	FreshRefusal   Law = "6b: a refusal is as new as the call that is refused"
	WrongGrant     Law = "7: a wrong grant changes nothing"
	Causes         Law = "8: every term has a cause, every takeover an actor and a note"
	Liveness       Law = "9: after faults stop a waiter acquires in time"
	LostUpdate     Law = "3b: what a holder has read is not written by an older one"
	FairRefusal    Law = "3c: a refusal is the fence's, and changes nothing"
	NoUnknownPanic Law = "0: the simulation itself"
)

// Number returns the law's number: "3b" for LostUpdate.
func (l Law) Number() string {
	n, _, _ := strings.Cut(string(l), ":")
	return n
}

// Violation is a broken law, and what broke it.
type Violation struct {
	Law  Law           `json:"law"`
	At   time.Duration `json:"at"`
	What string        `json:"what"`
}

func (v *Violation) Error() string {
	return fmt.Sprintf("law %s is broken at %s: %s", v.Law, clockFace(v.At), v.What)
}

// Result is the result of a run.
type Result struct {
	Case     Case          `json:"case"`
	Ops      int           `json:"ops"`    // requests made to stores and guards
	Lasted   time.Duration `json:"lasted"` // simulated time
	Broken   *Violation    `json:"broken"` // nil if every law held
	Fired    []Firing      `json:"fired"`  // the faults, in order
	Coverage Coverage      `json:"-"`      // counts of all sights
	Timeline []string      `json:"-"`      // only if Run was asked for it
	Events   int           `json:"events"` // events on the agenda
}

// clockFace formats a simulated time for timelines.
func clockFace(d time.Duration) string {
	return fmt.Sprintf("%9.6fs", float64(d/time.Microsecond)/1e6)
}
