package sqlite

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
)

// Place is where a guarded resource keeps its mark: a [FenceRow], or [Columns] of the caller's own table.
type Place interface {
	statements() (*clerk.Place, error)
}

// FenceRow is a row of the table croft_fence: for resources of any shape, one row or many tables. The name says which resource it
// is: writers that name the same row exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements() (*clerk.Place, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	// In the caller's own file, whatever else is attached to the connection: a name alone could be that of a table in another.
	p, err := Columns{Table: "main.croft_fence", Where: "name = ?1", Args: []any{f.Name}}.statements()
	if err != nil {
		return nil, err
	}
	p.Name, p.Enter = f.Name, sqlFenceEnter
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
//
// Such a guard has no URL: a table and a condition with arguments make none. Nobody but a program that has the same Columns can open it, and an operator's takeover reports it as unreachable. Where an
// operator must be able to shut an owner out by hand, use a [FenceRow].
type Columns struct {
	// Table is the caller's table. It and the columns are plain names without quotes.
	Table string
	// Where finds the one row, with Args as ?1, ?2 …: "id = ?1". It becomes part of statements: never make it from what others have sent.
	Where string
	Args  []any
	// The columns' names; default fence_key, fence_token, fence_grant and fence_seq.
	Key, Token, Grant, Seq string
}

func (c Columns) statements() (*clerk.Place, error) {
	return clerk.Columns(c).Place("?", sqlMark, sqlLock, sqlMove)
}

// ErrNoSuchRow is matched where the row that should carry the mark does not exist, or where it is not the only one.
var ErrNoSuchRow = errors.New("there is not exactly one such row")
