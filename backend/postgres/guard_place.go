package postgres

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
)

// Place is where a guarded resource keeps its mark: a [FenceRow], or [Columns] of the caller's own table.
type Place interface {
	statements(schema string) (*clerk.Place, error)
}

// FenceRow is a row of the table "fence" in Croft's own schema: for resources of any shape, one row or many tables. The name says which resource it
// is: writers that name the same row exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements(schema string) (*clerk.Place, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	p, err := Columns{Table: schema + ".fence", Where: "name = $1", Args: []any{f.Name}}.statements(schema)
	if err != nil {
		return nil, err
	}
	p.Name, p.Enter = f.Name, sqlText("queries/fence_enter.sql", schema)
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

func (c Columns) statements(string) (*clerk.Place, error) {
	mark := rawText("queries/mark.sql")
	return clerk.Columns(c).Place("$", mark, mark+" FOR UPDATE", rawText("queries/move.sql"))
}

// ErrNoSuchRow is matched where the row that should carry the mark does not exist, or where it is not the only one.
var ErrNoSuchRow = errors.New("there is not exactly one such row")
