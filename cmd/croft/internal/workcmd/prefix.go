package workcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

const (
	idLen = 32
	// shortestPrefix keeps a mistyped word from naming an item.
	shortestPrefix = 4
	// mostCandidates is how many items an ambiguous prefix lists.
	mostCandidates = 8
)

// checkIDs refuses, before anything is opened, texts that cannot be an item's
// id or the beginning of one.
func checkIDs(texts ...string) error {
	for _, text := range texts {
		if len(text) < shortestPrefix || len(text) > idLen || strings.Trim(text, "0123456789abcdef") != "" {
			return cli.Invalid("item id %.80q: it must be the 32 lower-case hex digits that add has printed, or at "+
				"least the first %d of them", text, shortestPrefix)
		}
	}
	return nil
}

// itemIDs completes ids that are abbreviated. Whole ids stay as they are, known
// or not.
func (a *app) itemIDs(ctx context.Context, l work.Ledger, texts ...string) ([]work.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	ids := make([]work.ID, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = itemID(ctx, l, text); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// itemID finds the one item whose id begins with a text.
func itemID(ctx context.Context, l work.Ledger, text string) (work.ID, error) {
	if len(text) == idLen {
		return work.ID(text), nil
	}
	// IDs are listed in their order, so those that begin with text follow the
	// ID just before it.
	var found []string
	query := work.Query{After: idBefore(text), Limit: mostCandidates + 1}
	for it, err := range l.List(ctx, query) {
		if err != nil {
			return "", store.Unknown(err)
		}
		if !strings.HasPrefix(string(it.ID), text) {
			break
		}
		found = append(found, string(it.ID))
	}
	switch {
	case len(found) == 0:
		return "", &work.NotFoundError{What: "item whose id begins with " + text}
	case len(found) == 1:
		return work.ID(found[0]), nil
	}
	more := ""
	if len(found) > mostCandidates {
		found, more = found[:mostCandidates], ", and more"
	}
	return "", &cli.UsageError{
		Message: fmt.Sprintf("item id %s: several items begin with it: %s%s", text, strings.Join(found, ", "), more),
		Hint:    "write more of its digits",
	}
}

// idBefore is the highest ID below all that begin with a prefix, or "" if there
// is none.
func idBefore(prefix string) work.ID {
	digits := []byte(prefix)
	for i := len(digits) - 1; i >= 0; i-- {
		const hex = "0123456789abcdef"
		if at := strings.IndexByte(hex, digits[i]); at > 0 {
			digits[i] = hex[at-1]
			return work.ID(string(digits[:i+1]) + strings.Repeat("f", idLen-i-1))
		}
	}
	return ""
}
