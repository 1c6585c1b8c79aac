package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// GuardTimeout bounds the opening of a guarded resource.
const GuardTimeout = 10 * time.Second

// OpenGuard opens a guarded resource within GuardTimeout.
func OpenGuard(ctx context.Context, target string) (guard.Guard, error) {
	target, err := WithPassword(target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, GuardTimeout)
	defer cancel()
	return guard.Open(ctx, target)
}

// OpenGuards opens guarded resources. The function that it returns closes them.
func OpenGuards(ctx context.Context, targets []string) ([]guard.Guard, func(), error) {
	var guards []guard.Guard
	closeAll := func() {
		for _, g := range guards {
			_ = g.Close()
		}
	}
	for _, target := range targets {
		g, err := OpenGuard(ctx, target)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("guard %s: %w", store.Redact(target), err)
		}
		guards = append(guards, g)
	}
	return guards, closeAll, nil
}

// GuardFlag defines --guard.
func GuardFlag(flags *pflag.FlagSet, targets *[]string) {
	flags.StringArrayVar(targets, "guard", nil,
		"a `target` the work will write to; it refuses older owners at once (repeatable)")
}
