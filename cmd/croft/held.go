package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// maxLease is longer than any lease.
const maxLease = 64 << 10

// leaseHelp ends the help of every command that takes a lease.
const leaseHelp = `Give the lease as acquire printed it, as text or JSON: @FILE, or - for standard
input. Without an argument croft takes the lease from CROFT_LEASE, which inside
"croft run" names a file. A lease holds a secret. Croft does not accept it as an
argument itself, because every user of the machine could read it there.`

// deed reads the lease that the argument names, or CROFT_LEASE.
func (a *app) deed(args []string) (tenure.Deed, error) {
	if len(args) == 0 {
		source := os.Getenv(envLease)
		if source == "" {
			return tenure.Deed{}, &usageError{
				"no lease given",
				"pass @FILE or - with what acquire printed, or set " + envLease + "=@FILE",
			}
		}
		if !strings.HasPrefix(source, "@") && source != "-" {
			return parseLease(source) // the user has put acquire's text into the variable
		}
		return a.leaseFrom(source)
	}
	if !strings.HasPrefix(args[0], "@") && args[0] != "-" {
		return tenure.Deed{}, &usageError{
			"the lease must be given as @FILE or -",
			"an argument can be read by every user of the machine, and a lease holds a secret",
		}
	}
	return a.leaseFrom(args[0])
}

// byDeed calls act with the lease that the argument or CROFT_LEASE names.
func (a *app) byDeed(
	ctx context.Context, args []string, act func(*croft.Client, tenure.Deed) (tenure.Record, error),
) (tenure.Deed, tenure.Record, error) {
	deed, err := a.deed(args)
	if err != nil {
		return deed, tenure.Record{}, err
	}
	client, end, err := a.client(ctx)
	if err != nil {
		return deed, tenure.Record{}, err
	}
	defer end()
	rec, err := act(client, deed)
	return deed, rec, err
}

// leaseFrom reads a lease from "@file" or "-".
func (a *app) leaseFrom(source string) (tenure.Deed, error) {
	r := a.stdin
	if name, isFile := strings.CutPrefix(source, "@"); isFile {
		f, err := os.Open(name)
		if err != nil {
			return tenure.Deed{}, invalid("lease: %v; give the file that holds what acquire printed", err)
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxLease))
	if err != nil {
		return tenure.Deed{}, invalid("lease: it could not be read: %v", err)
	}
	return parseLease(string(text))
}

// parseLease reads a lease as acquire prints it: a line of text, or JSON.
func parseLease(text string) (tenure.Deed, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		var view struct {
			Lease string `json:"lease"`
		}
		if err := json.Unmarshal([]byte(text), &view); err != nil {
			return tenure.Deed{},
				invalid("lease: it begins like JSON and is not; pass on unchanged what acquire printed")
		}
		text = view.Lease
	}
	return tenure.ParseDeed(text)
}

// stamp returns the stamp of a write, from --stamp, CROFT_STAMP or the lease.
func (a *app) stamp(flag string, seq uint64) (fence.Stamp, error) {
	text := flag
	if text == "" {
		text = os.Getenv(envStamp)
	}
	var s fence.Stamp
	var err error
	switch {
	case text != "":
		s, err = fence.ParseStamp(text)
	// Standard input holds the content of the write, so no lease can come from
	// it.
	case os.Getenv(envLease) != "" && os.Getenv(envLease) != "-":
		var d tenure.Deed
		if d, err = a.deed(nil); err == nil {
			s = d.Stamp()
		}
	default:
		err = &usageError{"no stamp given: nothing says whose write this is", "run it inside croft run, or pass " +
			"--stamp or set " + envStamp + " with the stamp that acquire --json prints"}
	}
	if err != nil {
		return fence.Stamp{}, err
	}
	if seq != 0 {
		s.Seq = seq
	}
	return s, nil
}

func stampFlag(flags *pflag.FlagSet, text *string) {
	flags.StringVar(text, "stamp", "", "whose write this is (default $"+envStamp+", else the lease of $"+envLease+")")
}
