package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// RaiseHelp tells where croft raises the fence.
const RaiseHelp = `Somebody else chose those targets. Croft does not open them just because they
are named: it would send your credentials wherever that somebody says. It raises
the fence in the store's own place (the same server and database, bucket or
file; with a store that only you can write to, also at files), and in the places
that you name with --raise, in CROFT_RAISE, or in your configuration file. If
the fence is not up at every target in the end, the exit code is 1. Croft uses
the first place that fits a target, those of --raise first.

Name a PostgreSQL database as the role that owns the fence table there. The
owner of a table can make its users run code, so croft refuses owners other than
that role and superusers. Put URLs with passwords into CROFT_RAISE: every user
of the machine sees arguments.`

// RaiseFlag defines --raise.
func RaiseFlag(c *cobra.Command, places *[]string) {
	c.Flags().StringArrayVar(places, "raise", nil, "also raise the fence at targets in this `place`: a folder, or a "+
		"URL such as s3://bucket/reports (repeatable; CROFT_RAISE and \"raise\" in your configuration file add more)")
}

// AllowRaise returns the places where the user lets croft raise the fence. The
// first place that fits a target is used, so flags come before the environment,
// and the environment before files.
func (a *App) AllowRaise(places []string) (guard.Allowed, error) {
	places = append(slices.Clip(places), envPlaces()...)
	config, err := a.Config()
	if err != nil {
		return guard.Allowed{}, err
	}
	for _, s := range config.Raise() {
		if _, err := guard.Allow(s.Value); err != nil {
			return guard.Allowed{}, fmt.Errorf("configuration %s: %w", s.From.Where, err)
		}
		places = append(places, s.Value)
	}
	return guard.Allow(places...)
}

// envPlaces are the places of CROFT_RAISE.
func envPlaces() []string { return strings.Fields(os.Getenv(EnvRaise)) }

// RaiseView says in JSON whether the fence was raised at one resource.
type RaiseView struct {
	Target string `json:"target"`
	Raised bool   `json:"raised"`
	Error  string `json:"error,omitempty"`
}

// PrintRaised prints on standard error where the fence is up after an act with
// this stamp. It returns the guards for JSON.
func (a *App) PrintRaised(raised []guard.Raised, stamp fence.Stamp) []RaiseView {
	views, missing := []RaiseView{}, false
	for _, r := range raised {
		v := RaiseView{Target: store.Redact(r.Target), Raised: r.Err == nil}
		switch {
		case r.Err == nil:
			fmt.Fprintf(a.Stderr, "croft: fence raised: %s\n", Word(v.Target))
		case errors.Is(r.Err, guard.ErrNotAllowed):
			missing = true
			v.Error = a.Redact(r.Err.Error())
			fmt.Fprintf(a.Stderr, "croft: fence NOT raised: %s: %s\n       if you trust this target, allow it with "+
				"--raise, or raise it alone\n", Word(v.Target), Lines(v.Error))
		default:
			missing = true
			v.Error = a.Redact(r.Err.Error())
			fmt.Fprintf(a.Stderr, "croft: fence NOT raised: %s: %s\n", Word(v.Target), Lines(v.Error))
		}
		views = append(views, v)
	}
	if missing {
		a.AdviseRaise(stamp)
	}
	return views
}

// AdviseRaise tells how to raise the fence by hand.
func (a *App) AdviseRaise(stamp fence.Stamp) {
	fmt.Fprintf(a.Stderr, "       raise it yourself where it matters: croft guard raise TARGET --stamp %s\n", stamp)
}
