package workcmd

import (
	"context"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/work"
)

// Patient opens the ledger for another command, and creates the default one.
// Its Apply asks again when the ledger does not answer, as the commands of an
// item's owner do.
func Patient(ctx context.Context, a *cli.App) (work.Ledger, error) {
	commands := &app{a}
	l, err := commands.ledger(ctx)
	if err != nil {
		return nil, err
	}
	return patient{l, commands}, nil
}
