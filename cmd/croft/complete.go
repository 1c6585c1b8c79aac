package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// These bound a completion, because a person has pressed TAB and waits: how
// long it may take, and how many keys it lists.
const (
	completionTime = 2 * time.Second
	completionKeys = 500
)

// completeKey completes the first argument with keys. It completes nothing if
// the store does not exist or is slow.
func (a *app) completeKey(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.keys(c.Context(), begun), cobra.ShellCompDirectiveNoFileComp
}

// completeSecondKey completes a file as the first argument and a key as the
// second.
func (a *app) completeSecondKey(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return nil, cobra.ShellCompDirectiveDefault
	case 1:
		return a.keys(c.Context(), begun), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) keys(ctx context.Context, begun string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	st, err := a.lookUp(ctx)
	if err != nil {
		return nil
	}
	defer st.Close()
	now, err := st.Now(ctx)
	if err != nil {
		return nil
	}
	var keys []string
	for rec, err := range listed(ctx, st, begun) {
		if err != nil || len(keys) == completionKeys {
			break
		}
		if word(rec.Key) != rec.Key {
			continue // quoted, it is another word to the shell
		}
		state, _ := stateOf(rec, now)
		keys = append(keys, cobra.CompletionWithDesc(rec.Key, state+" "+line(rec.Owner)))
	}
	return keys
}

// completeLease completes the first character of a lease: @FILE, or -. Shells
// cannot complete a file name after an @.
func completeLease(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"@", "-"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

func completeNothingThenLease(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeLease(c, args, begun)
}
