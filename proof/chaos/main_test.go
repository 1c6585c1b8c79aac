package chaos

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The message must name the flag, and nothing may be started.
func TestBadFlagsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":               {[]string{"-h"}, exitLawful, "--backend"},
		"an unknown flag":    {[]string{"--frob"}, exitUsage, "frob"},
		"an unknown backend": {[]string{"--backend", "dir,floppy"}, exitUsage, `"floppy"`},
		"an argument":        {[]string{"dir"}, exitUsage, `"dir"`},
		"no time":            {[]string{"--for", "0s"}, exitUsage, "--for"},
		"fewer than none":    {[]string{"--operators", "-1"}, exitUsage, "--operators"},
		"no clients":         {[]string{"--clients", "0"}, exitUsage, "--clients"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if got := Main(c.args, &out, &errs); got != c.status || !strings.Contains(strings.ReplaceAll(errs.String(), "-backend", "--backend"), c.says) {
				t.Errorf("exit %d, said %q", got, errs.String())
			}
		})
	}
}

// With --json the command prints a report for each of both runs.
func TestTheCommandReportsBothRuns(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	status := Main([]string{"--backend", "dir", "--for", "1s", "--control", "1s", "--clients", "3", "--operators", "1", "--keys", "2", "--seed", "7", "--json", "--keep", t.TempDir()}, &out, &errs)
	if status == exitFailed {
		t.Fatalf("exit %d: %s", status, errs.String())
	}
	lines := json.NewDecoder(&out)
	for _, guarded := range []bool{false, true} {
		var r Report
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Guarded != guarded || r.Backend != "dir" || r.Seed != 7 || r.Clients != 3 || r.Operators != 1 || r.Keys != 2 || r.Operations == 0 {
			t.Errorf("reported %+v", r)
		}
		if guarded && (r.Lost > 0 || len(r.Violations) > 0) {
			t.Errorf("broken: %v", r.Violations)
		}
	}
}
