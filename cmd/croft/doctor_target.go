package main

import (
	"context"
	"fmt"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// doctorTarget examines a guarded resource: which guard it has, and why.
func (a *app) doctorTarget(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, cli.ListTimeout)
	defer cancel()
	g, err := cli.OpenGuard(ctx, target)
	if err != nil {
		return err
	}
	defer g.Close()
	findings, err := examineGuard(ctx, g)
	if err != nil {
		return err
	}
	return a.reportFindings(findings, store.Redact(g.Target()))
}

// examineGuard asks the guard about itself, and reads its mark.
func examineGuard(ctx context.Context, g guard.Guard) ([]store.Finding, error) {
	var findings []store.Finding
	if e, ok := g.(store.Examiner); ok {
		own, err := e.Examine(ctx)
		if err != nil {
			return nil, err
		}
		findings = own
	} else {
		findings = append(findings, store.Finding{
			Check: "guard", Level: store.OK, Seen: "the service itself checks the mark and writes in one step",
		})
	}
	mark, err := g.Mark(ctx)
	if err != nil {
		return nil, err
	}
	f := store.Finding{Check: "mark", Level: store.OK, Seen: "nothing has been admitted yet; the first write begins it"}
	if !mark.IsZero() {
		f.Seen = fmt.Sprintf("token %d of %s", mark.Token, mark.Key)
	}
	return append(findings, f), nil
}
