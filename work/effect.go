package work

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
)

// EffectState says what the ledger knows of an effect.
type EffectState string

// The states of an effect.
const (
	// Pending effects are to be delivered, from their Ready time on.
	Pending EffectState = "pending"
	// Sent effects have reached the receiver.
	Sent EffectState = "sent"
	// Failed effects are given up. An operator may make them pending again.
	Failed EffectState = "failed"
	// Unknown effects may or may not have been delivered. A dispatcher is
	// delivering them now, or it died, or it got no answer.
	Unknown EffectState = "unknown"
)

// EffectStates lists all states.
var EffectStates = []EffectState{Pending, Unknown, Sent, Failed}

// Emission is an effect that a completion asks for.
type Emission struct {
	// Name tells the effects of one item apart: "charge", "mail/customer". It
	// is a part of the effect's identity, so every attempt must use the same
	// name for the same thing.
	Name string
	// To names the destination. The dispatcher knows how to reach it: an item
	// cannot choose a URL or a command by itself. Empty means Name.
	To   string
	Body []byte
	// AtMostOnce says that the receiver does not recognize repetitions by their
	// Idempotency-Key. If the outcome of a delivery is unknown, the effect
	// stays unknown until an operator settles it.
	AtMostOnce bool
}

// EffectID is the identity of an effect. A second attempt of the item uses the
// same one. Only an operator's replay with Again makes a new one.
type EffectID struct {
	Item       ID     `json:"item"`
	Name       string `json:"name"`
	Generation int    `json:"generation"`
}

// String returns the identity as one printable word. Receivers get it as
// Idempotency-Key.
func (e EffectID) String() string {
	return string(e.Item) + ":" + strconv.Itoa(e.Generation) + ":" + fence.EscapeKey(e.Name)
}

// Compare orders identities by item, generation and name, byte by byte.
func (e EffectID) Compare(other EffectID) int {
	return cmp.Or(
		cmp.Compare(e.Item, other.Item),
		cmp.Compare(e.Generation, other.Generation),
		cmp.Compare(e.Name, other.Name),
	)
}

// ParseEffectID reads an identity that String wrote. Its error matches
// fence.ErrInvalid.
func ParseEffectID(text string) (EffectID, error) {
	parts := strings.Split(text, ":")
	bad := fmt.Errorf("%w effect %.80q: it has the form item:generation:name, as the list of effects shows it",
		fence.ErrInvalid, text)
	if len(parts) != 3 {
		return EffectID{}, bad
	}
	n, err := strconv.Atoi(parts[1])
	name, err2 := fence.UnescapeKey(parts[2])
	id := EffectID{Item: ID(parts[0]), Generation: n, Name: name}
	if err != nil || err2 != nil || id.Check() != nil || id.String() != text {
		return EffectID{}, bad
	}
	return id, nil
}

// Check returns nil if the identity is valid, or an error that matches
// fence.ErrInvalid.
func (e EffectID) Check() error {
	if err := e.Item.Check(); err != nil {
		return err
	}
	if e.Name == "" {
		return fmt.Errorf("%w effect: it has no name", fence.ErrInvalid)
	}
	if e.Generation < 0 {
		return fmt.Errorf("%w effect: generation %d", fence.ErrInvalid, e.Generation)
	}
	return checkName("effect name", e.Name, MaxEffectName)
}

// Effect is one row of the outbox. Times are on the ledger's clock.
type Effect struct {
	EffectID
	Queue      string `json:"queue"`
	To         string `json:"to"`
	Body       []byte `json:"body,omitempty"`
	AtMostOnce bool   `json:"at_most_once,omitempty"`

	// Token, Grant and Owner belong to the completion that wrote the effect.
	// They say where it comes from, and are no part of its identity.
	Token fence.Token `json:"token"`
	Grant fence.Grant `json:"grant"`
	Owner string      `json:"owner,omitempty"`

	State    EffectState `json:"state"`
	Attempts int         `json:"attempts"` // how often a dispatcher took it
	// Ready is when a pending effect may be taken. For an unknown effect it is
	// until when its dispatcher may settle it; then the effect is orphaned.
	Ready time.Time `json:"ready"`
	// Sender is the token of the dispatcher that last took the effect.
	Sender  fence.Token `json:"sender,omitempty"`
	Created time.Time   `json:"created"`
	Settled time.Time   `json:"settled,omitzero"` // when it was last settled
	Error   string      `json:"error,omitempty"`  // of the last delivery
	// Actor and Note say who last settled it by hand, and why.
	Actor string `json:"actor,omitempty"`
	Note  string `json:"note,omitempty"`
}

// IsZero reports whether the ledger remembers no such effect.
func (e Effect) IsZero() bool { return e.Item == "" }

// Orphaned reports whether a dispatcher took the effect and has not settled it
// in time.
func (e Effect) Orphaned(now time.Time) bool { return e.State == Unknown && !now.Before(e.Ready) }

// effects returns the rows that a completion writes to the outbox. The item is
// the one after the completion.
func effects(it Item, emissions []Emission, now time.Time) []Effect {
	var rows []Effect
	for _, m := range emissions {
		to := m.To
		if to == "" {
			to = m.Name
		}
		rows = append(rows, Effect{
			EffectID: EffectID{Item: it.ID, Name: m.Name, Generation: it.Generation},
			Queue:    it.Queue, To: to, Body: m.Body, AtMostOnce: m.AtMostOnce,
			Token: it.Record.Token, Grant: it.Record.Grant, Owner: it.Record.Owner,
			State: Pending, Ready: now, Created: now,
		})
	}
	return rows
}

func checkEmissions(emissions []Emission) error {
	if err := checkSize("list of effects", len(emissions), MaxEffects); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, m := range emissions {
		switch {
		case m.Name == "":
			return fmt.Errorf("%w effect: it has no name", fence.ErrInvalid)
		case seen[m.Name]:
			return fmt.Errorf("%w effect %q: it is named twice; effects of one item are told apart by name",
				fence.ErrInvalid, m.Name)
		}
		seen[m.Name] = true
		if err := checkName("effect name", m.Name, MaxEffectName); err != nil {
			return err
		}
		if err := checkName("destination", m.To, MaxEffectName); err != nil {
			return err
		}
		if err := checkSize(fmt.Sprintf("body of effect %q", m.Name), len(m.Body), MaxBody); err != nil {
			return err
		}
	}
	return nil
}
