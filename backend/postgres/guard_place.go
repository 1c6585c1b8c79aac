package postgres

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
	statements(schema string) (*placeStatements, error)
}

// placeStatements read and move one mark. Their arguments are those that find its row; move has the mark's four after them.
type placeStatements struct {
	name, table      string
	mark, lock, move string
	enter            string // makes the row, where that is not the caller's to do
	args             []any
}

// FenceRow is a row of the table "fence" in Croft's own schema: for resources of any shape, one row or many tables. The name says which resource it
// is: writers that name the same row exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements(schema string) (*placeStatements, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	p, err := Columns{Table: schema + ".fence", Where: "name = $1", Args: []any{f.Name}}.statements(schema)
	if err != nil {
		return nil, err
	}
	p.name, p.enter = f.Name, sqlText("queries/fence_enter.sql", schema)
	return p, nil
}

// Columns keep the mark in the guarded row itself, in four columns that may be NULL:
//
//	ALTER TABLE report ADD fence_key text, ADD fence_token bigint, ADD fence_grant text, ADD fence_seq numeric(20);
//
// The row must exist: what has no row has no mark.
//
// Such a guard has no URL: a table and a condition with arguments make none. So nobody but a program that has the same Columns can open it, and an operator's takeover, which
// raises the fence at the guards named in a lease by their targets, reports it as unreachable. The old owner is still refused from the new owner's first write (or Raise)
// on. Where an operator must be able to shut an owner out by hand, use a [FenceRow] (its target is postgres://host/database#NAME), or give operators a program that calls Raise
// with the stamp which the takeover prints.
type Columns struct {
	// Table is the caller's table. Name it with its schema unless all who use it have the same search_path. It and the columns are plain names without quotes.
	Table string
	// Where finds the one row, with Args as $1, $2 …: "id = $1". It becomes part of statements: never make it from what others have sent.
	Where string
	Args  []any
	// The columns' names; default fence_key, fence_token, fence_grant and fence_seq.
	Key, Token, Grant, Seq string
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)?$`)

func (c Columns) statements(string) (*placeStatements, error) {
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
	arg := func(n int) string { return "$" + strconv.Itoa(len(c.Args)+n) }
	fill := strings.NewReplacer(
		"{table}", c.Table, "{key}", c.Key, "{token}", c.Token, "{grant}", c.Grant, "{seq}", c.Seq, "{where}", "("+c.Where+")",
		"{new_key}", arg(1), "{new_token}", arg(2), "{new_grant}", arg(3), "{new_seq}", arg(4),
	)
	mark := fill.Replace(rawText("queries/mark.sql"))
	return &placeStatements{
		name:  fmt.Sprintf("%s where %s %v", c.Table, c.Where, c.Args),
		table: c.Table,
		mark:  mark,
		lock:  mark + " FOR UPDATE",
		move:  fill.Replace(rawText("queries/move.sql")),
		args:  c.Args,
	}, nil
}

// ErrNoSuchRow is matched where the row that should carry the mark does not exist, or where it is not the only one.
var ErrNoSuchRow = errors.New("there is not exactly one such row")
