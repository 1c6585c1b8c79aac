package cli

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// These bound a completion, because a person has pressed TAB and waits: how
// long it may take, and how many keys it lists.
const (
	CompletionTime = 2 * time.Second
	CompletionKeys = 500
)

// CompleteKey completes the first argument with keys. It completes nothing if
// the store does not exist or is slow.
func (a *App) CompleteKey(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.keys(c.Context(), begun), cobra.ShellCompDirectiveNoFileComp
}

// CompleteSecondKey completes a file as the first argument and a key as the
// second.
func (a *App) CompleteSecondKey(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return nil, cobra.ShellCompDirectiveDefault
	case 1:
		return a.keys(c.Context(), begun), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *App) keys(ctx context.Context, begun string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, CompletionTime)
	defer cancel()
	st, err := a.LookUp(ctx)
	if err != nil {
		return nil
	}
	defer st.Close()
	now, err := st.Now(ctx)
	if err != nil {
		return nil
	}
	var keys []string
	for rec, err := range ListRecords(ctx, st, begun) {
		if err != nil || len(keys) == CompletionKeys {
			break
		}
		if !Completable(rec.Key) {
			continue
		}
		state, _ := StateOf(rec, now)
		keys = append(keys, cobra.CompletionWithDesc(rec.Key, state+" "+Line(rec.Owner)))
	}
	return keys
}

// Completable reports whether a word from a store may be offered to a shell: it
// has only letters, digits and marks that mean nothing to any shell. At the
// next TAB a shell evaluates the words on its line, and a neighbour may have
// chosen them.
func Completable(word string) bool {
	return word != "" && word[0] != '-' && !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,=", r)
	})
}

// CompleteLease completes the first character of a lease: @FILE, or -. Shells
// cannot complete a file name after an @.
func CompleteLease(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"@", "-"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// CompleteNothingThenLease completes nothing as the first argument, and then a
// lease.
func CompleteNothingThenLease(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return CompleteLease(c, args, begun)
}
