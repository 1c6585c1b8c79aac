package sqlite

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
)

// Resource says where a guarded resource keeps its mark: in a [FenceRow], or in
// [Columns] of the caller's own table.
type Resource interface {
	statements() (*clerk.Resource, error)
}

// FenceRow keeps the mark in a row of the table croft_fence. It suits resources
// of any shape, from one row to many tables. The name says which resource it
// is: writers that name the same row exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements() (*clerk.Resource, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	// "main" is the caller's own file. Without it, the table could be one in
	// another file that is attached to the connection.
	p, err := Columns{Table: "main.croft_fence", Where: "name = ?1", Args: []any{f.Name}}.statements()
	if err != nil {
		return nil, err
	}
	p.Name, p.Enter = f.Name, sqlFenceEnter
	return p, nil
}

// Columns keep the mark in the guarded row itself, in four columns that may be
// NULL:
//
//	ALTER TABLE report ADD COLUMN fence_key TEXT;
//	ALTER TABLE report ADD COLUMN fence_token INTEGER;
//	ALTER TABLE report ADD COLUMN fence_grant TEXT;
//	ALTER TABLE report ADD COLUMN fence_seq TEXT;
//
// The row must exist before it is guarded.
//
// Such a guard cannot be opened by a URL, because a URL cannot hold the
// condition and its arguments. Only a program that has the same Columns can
// open it, and an operator's takeover reports it as unreachable. If operators
// must be able to shut an owner out by hand, use a [FenceRow].
type Columns struct {
	// Table is the caller's table. The names of the table and the columns need
	// no quotes.
	Table string
	// Where finds the one row, with Args as ?1, ?2 …: "id = ?1". It becomes
	// part of statements: never build it from input of others.
	Where string
	Args  []any
	// Key, Token, Grant and Seq name the columns; default fence_key,
	// fence_token, fence_grant and fence_seq.
	Key, Token, Grant, Seq string
}

func (c Columns) statements() (*clerk.Resource, error) {
	return clerk.Columns(c).Resource("?", sqlMark, sqlLock, sqlMove)
}

// ErrNoSuchRow is matched if no row, or more than one, fits the condition of
// [Columns].
var ErrNoSuchRow = errors.New("there is not exactly one such row")
