package cli

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

// MaxLease is longer than any lease.
const MaxLease = 64 << 10

// LeaseHelp ends the help of every command that takes a lease.
const LeaseHelp = `Give the lease as acquire printed it, as text or JSON: @FILE, or - for standard
input. Without an argument croft takes the lease from CROFT_LEASE, which inside
"croft run" names a file. A lease holds a secret. Croft does not accept it as an
argument itself, because every user of the machine could read it there.`

// Deed reads the lease that the argument names, or CROFT_LEASE.
func (a *App) Deed(args []string) (tenure.Deed, error) {
	if len(args) == 0 {
		source := os.Getenv(EnvLease)
		if source == "" {
			return tenure.Deed{}, &UsageError{
				"no lease given",
				"pass @FILE or - with what acquire printed, or set " + EnvLease + "=@FILE",
			}
		}
		if !strings.HasPrefix(source, "@") && source != "-" {
			return ParseLease(source) // the user has put acquire's text into the variable
		}
		return a.leaseFrom(source)
	}
	if !strings.HasPrefix(args[0], "@") && args[0] != "-" {
		return tenure.Deed{}, &UsageError{
			"the lease must be given as @FILE or -",
			"an argument can be read by every user of the machine, and a lease holds a secret",
		}
	}
	return a.leaseFrom(args[0])
}

// ByDeed calls act with the lease that the argument or CROFT_LEASE names.
func (a *App) ByDeed(
	ctx context.Context, args []string, act func(*croft.Client, tenure.Deed) (tenure.Record, error),
) (tenure.Deed, tenure.Record, error) {
	deed, err := a.Deed(args)
	if err != nil {
		return deed, tenure.Record{}, err
	}
	client, end, err := a.Client(ctx)
	if err != nil {
		return deed, tenure.Record{}, err
	}
	defer end()
	defer a.AskOnTerminal()()
	rec, err := act(client, deed)
	return deed, rec, err
}

// leaseFrom reads a lease from "@file" or "-".
func (a *App) leaseFrom(source string) (tenure.Deed, error) {
	r := a.Stdin
	if name, isFile := strings.CutPrefix(source, "@"); isFile {
		f, err := os.Open(name)
		if err != nil {
			return tenure.Deed{}, Invalid("lease: %v; give the file that holds what acquire printed", err)
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxLease))
	if err != nil {
		return tenure.Deed{}, Invalid("lease: it could not be read: %v", err)
	}
	return ParseLease(string(text))
}

// ParseLease reads a lease as acquire prints it: a line of text, or JSON.
func ParseLease(text string) (tenure.Deed, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		var view struct {
			Lease string `json:"lease"`
		}
		if err := json.Unmarshal([]byte(text), &view); err != nil {
			return tenure.Deed{},
				Invalid("lease: it begins like JSON and is not; pass on unchanged what acquire printed")
		}
		text = view.Lease
	}
	return tenure.ParseDeed(text)
}

// Stamp returns the stamp of a write, from --stamp, CROFT_STAMP or the lease.
func (a *App) Stamp(flag string, seq uint64) (fence.Stamp, error) {
	text := flag
	if text == "" {
		text = os.Getenv(EnvStamp)
	}
	var s fence.Stamp
	var err error
	switch {
	case text != "":
		s, err = fence.ParseStamp(text)
	// Standard input holds the content of the write, so no lease can come from
	// it.
	case os.Getenv(EnvLease) != "" && os.Getenv(EnvLease) != "-":
		var d tenure.Deed
		if d, err = a.Deed(nil); err == nil {
			s = d.Stamp()
		}
	default:
		err = &UsageError{"no stamp given: nothing says whose write this is", "run it inside croft run, or pass " +
			"--stamp or set " + EnvStamp + " with the stamp that acquire --json prints"}
	}
	if err != nil {
		return fence.Stamp{}, err
	}
	if seq != 0 {
		s.Seq = seq
	}
	return s, nil
}

// StampFlag defines --stamp.
func StampFlag(flags *pflag.FlagSet, text *string) {
	flags.StringVar(text, "stamp", "", "whose write this is (default $"+EnvStamp+", else the lease of $"+EnvLease+")")
}
