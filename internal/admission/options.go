package admission

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/tenure"
)

// Options shape a [Gate]. Marks is required. The fields that httpfence.Options
// has, too, are described there.
type Options struct {
	// NotedAs begins the targets under which refusals are noted, as in
	// http:RESOURCE. Default: the target is the resource.
	NotedAs string
	// Standby is how long a write waits while another gate has the resource.
	// Default: it is refused at once.
	Standby time.Duration
	// Opener follows the advice to clients that an operator opens a closed
	// resource, as in " (croft proxy open)". Default: nothing.
	Opener string
	// Hide takes secrets out of texts of the service, which everybody who can
	// read the store would see. Default: there are none.
	Hide func(string) string

	Marks         func(ctx context.Context, resource string) (guard.Guard, error)
	Served        func(ctx context.Context, resource string) (guard.Guard, error)
	Client        *croft.Client
	Notes         *croft.Client
	LeasePrefix   string
	TTL           time.Duration
	Settle        time.Duration
	Wait          time.Duration
	Idle          time.Duration
	MaxWrites     int
	MaxResources  int
	Current       guard.Current
	AdmitUnsure   bool
	RefuseNothing bool
	Observe       func(gate.Event)
	Logger        *slog.Logger
}

// DefaultLeasePrefix begins the keys of gates' leases.
const DefaultLeasePrefix = "croft-proxy/"

// markTimeout bounds one read, or one raise, of a mark.
const markTimeout = 5 * time.Second

// mostTTL bounds the TTL of gates. It also bounds how long a gate can believe
// in a lease that an operator has taken from it.
const mostTTL = time.Minute

// fill checks the options and fills in the defaults.
func (o *Options) fill() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w gate: %s", fence.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if o.Marks == nil {
		return bad("it has no marks; set Marks, for example to MarksAt(\"redis://host/0#{resource}\")")
	}
	if o.Notes == nil {
		o.Notes = o.Client
	}
	if o.Hide == nil {
		o.Hide = func(text string) string { return text }
	}
	if o.LeasePrefix == "" {
		o.LeasePrefix = DefaultLeasePrefix
	}
	if err := fence.CheckKey(o.LeasePrefix + "x"); err != nil {
		return bad("lease prefix: %v", err)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
		most  time.Duration
	}{
		{"TTL", &o.TTL, 15 * time.Second, mostTTL},
		{"Settle", &o.Settle, 30 * time.Second, croft.Forever},
		{"Wait", &o.Wait, time.Minute, tenure.MaxPeriod},
		{"Idle", &o.Idle, time.Minute, tenure.MaxPeriod},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < 0 || *d.value > d.most {
			return bad("%s %s: it must be between 0 and %s", d.name, *d.value, d.most)
		}
	}
	for _, n := range []struct {
		name  string
		value *int
		usual int
	}{{"MaxWrites", &o.MaxWrites, 4096}, {"MaxResources", &o.MaxResources, 1 << 16}} {
		if *n.value == 0 {
			*n.value = n.usual
		}
		if *n.value < 0 {
			return bad("%s %d: it must be more than 0", n.name, *n.value)
		}
	}
	if o.TTL < tenure.MinTTL {
		return bad("TTL %s: it must be at least %s", o.TTL, tenure.MinTTL)
	}
	return nil
}
