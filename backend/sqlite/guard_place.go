package sqlite

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/croft-dev/croft/fence"
)

// Place is where a guarded resource keeps its mark: a [FenceRow], or [Columns] of the caller's own table.
type Place interface {
	statements() (*placeStatements, error)
}

// placeStatements read and move one mark. Their arguments are those that find its row; move has the mark's four after them.
type placeStatements struct {
	name             string
	mark, lock, move string
	enter            string // makes the row, where that is not the caller's to do
	args             []any
}

// FenceRow is a row of the table croft_fence: for resources of any shape, one row or many tables. The name says which resource it
// is: writers that name the same row exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements() (*placeStatements, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	p, err := Columns{Table: "croft_fence", Where: "name = ?1", Args: []any{f.Name}}.statements()
	if err != nil {
		return nil, err
	}
	p.name, p.enter = f.Name, statementText("fence_enter")
	return p, nil
}

// Columns keep the mark in the guarded row itself, in four columns that may be NULL:
//
//	ALTER TABLE report ADD COLUMN fence_key TEXT;
//	ALTER TABLE report ADD COLUMN fence_token INTEGER;
//	ALTER TABLE report ADD COLUMN fence_grant TEXT;
//	ALTER TABLE report ADD COLUMN fence_seq TEXT;
//
// The row must exist: what has no row has no mark.
type Columns struct {
	// Table is the caller's table. It and the columns are plain names without quotes.
	Table string
	// Where finds the one row, with Args as ?1, ?2 …: "id = ?1". It becomes part of statements: never make it from what others have sent.
	Where string
	Args  []any
	// The columns' names; default fence_key, fence_token, fence_grant and fence_seq.
	Key, Token, Grant, Seq string
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)?$`)

func (c Columns) statements() (*placeStatements, error) {
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
			return nil, fmt.Errorf("%w name %q: the tables and columns of a guard are plain names", fence.ErrInvalid, name)
		}
	}
	if strings.TrimSpace(c.Where) == "" {
		return nil, fmt.Errorf("%w guard of table %s: Where is empty; say which row", fence.ErrInvalid, c.Table)
	}
	arg := func(n int) string { return "?" + strconv.Itoa(len(c.Args)+n) }
	fill := strings.NewReplacer(
		"{table}", c.Table, "{key}", c.Key, "{token}", c.Token, "{grant}", c.Grant, "{seq}", c.Seq, "{where}", "("+c.Where+")",
		"{new_key}", arg(1), "{new_token}", arg(2), "{new_grant}", arg(3), "{new_seq}", arg(4),
	)
	return &placeStatements{
		name: fmt.Sprintf("%s where %s %v", c.Table, c.Where, c.Args),
		mark: fill.Replace(statementText("mark")),
		lock: fill.Replace(statementText("lock")),
		move: fill.Replace(statementText("move")),
		args: c.Args,
	}, nil
}

// ErrNoSuchRow is matched where the row that should carry the mark does not exist, or where it is not the only one.
var ErrNoSuchRow = errors.New("there is not exactly one such row")
