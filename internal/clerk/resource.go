package clerk

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
)

// Columns say where a guard keeps its mark: in four columns of the one row that
// Where selects with Args. Columns without a name have the usual name.
type Columns struct {
	Table, Where           string
	Args                   []any
	Key, Token, Grant, Seq string
}

// Resource has the statements that read, lock and move a resource's mark. Their
// arguments are Args. Move has the four values of the mark after them.
type Resource struct {
	Name, Table      string
	Mark, Lock, Move string
	Enter            string // makes the row, if the guard must
	Args             []any
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)?$`)

// Resource fills the columns into the statements of a database. In these, {…}
// stand for names, the condition and the numbers of arguments. Sign is how the
// database writes an argument: "$" for $1, "?" for ?1.
func (c Columns) Resource(sign, mark, lock, move string) (*Resource, error) {
	for _, column := range []struct {
		name  *string
		usual string
	}{{&c.Key, "fence_key"}, {&c.Token, "fence_token"}, {&c.Grant, "fence_grant"}, {&c.Seq, "fence_seq"}} {
		if *column.name == "" {
			*column.name = column.usual
		}
	}
	for _, name := range []string{c.Table, c.Key, c.Token, c.Grant, c.Seq} {
		if !plainName.MatchString(name) {
			return nil, fmt.Errorf("%w name %q: the tables and columns of a guard are plain names",
				fence.ErrInvalid, name)
		}
	}
	if strings.TrimSpace(c.Where) == "" {
		return nil, fmt.Errorf("%w guard of table %s: Where is empty; say which row", fence.ErrInvalid, c.Table)
	}
	arg := func(n int) string { return sign + strconv.Itoa(len(c.Args)+n) }
	fill := strings.NewReplacer(
		"{table}", c.Table, "{key}", c.Key, "{token}", c.Token, "{grant}", c.Grant, "{seq}", c.Seq,
		"{where}", "("+c.Where+")",
		"{new_key}", arg(1), "{new_token}", arg(2), "{new_grant}", arg(3), "{new_seq}", arg(4),
	)
	return &Resource{
		Name: fmt.Sprintf("%s where %s %v", c.Table, c.Where, c.Args), Table: c.Table,
		Mark: fill.Replace(mark), Lock: fill.Replace(lock), Move: fill.Replace(move), Args: c.Args,
	}, nil
}

// Decide applies a decision of package fence to the mark before, which the
// caller has locked. If the decision changes the mark, it calls move to write
// it. It returns the new mark, or the refusal with the old one.
func (r *Resource) Decide(
	before fence.Mark, law func(fence.Mark) (fence.Mark, error), move func(text string, args []any) error,
) (fence.Mark, error) {
	next, refusal := law(before)
	if refusal != nil {
		return before, refusal
	}
	if next == before {
		return next, nil
	}
	if err := move(r.Move, append(slices.Clone(r.Args), next.Key, int64(next.Token), string(next.Grant),
		strconv.FormatUint(next.Seq, 10))); err != nil {
		return fence.Mark{}, err
	}
	return next, nil
}
