package postgres

import (
	"errors"
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
)

// Resource says where a guarded resource keeps its mark: in a [FenceRow], or in
// [Columns] of the caller's own table.
type Resource interface {
	statements(schema string) (*clerk.Resource, error)
}

// FenceRow is a row of the table "fence" in Croft's own schema. It suits
// resources of any shape, from one row to many tables. Name is the resource's
// name: writers that use the same name exclude each other.
type FenceRow struct{ Name string }

func (f FenceRow) statements(schema string) (*clerk.Resource, error) {
	if err := fence.CheckKey(f.Name); err != nil {
		return nil, fmt.Errorf("fence row: %w", err)
	}
	p, err := Columns{Table: schema + ".fence", Where: "name = $1", Args: []any{f.Name}}.statements(schema)
	if err != nil {
		return nil, err
	}
	p.Name, p.Enter = f.Name, inSchema("fence_enter", schema)
	return p, nil
}

// Columns keep the mark in the guarded row itself, in four columns that may be
// NULL:
//
//	ALTER TABLE report ADD fence_key text, ADD fence_token bigint,
//		ADD fence_grant text, ADD fence_seq numeric(20);
//
// The row must exist. Without a row there is no mark.
//
// Such a guard has no URL, because a table and a condition with arguments make
// none. So only a program with the same Columns can open it. An operator's
// takeover raises the fence at the targets named in a lease. It reports this
// guard as unreachable. The old owner is still refused, from the new owner's
// first write or Raise on.
//
// Use a [FenceRow] where an operator must be able to shut an owner out by hand.
// Its target is postgres://host/database#NAME. Or give operators a program that
// calls Raise with the stamp which the takeover prints.
type Columns struct {
	// Table is the caller's table. Name it with its schema unless all its users
	// have the same search_path. The table and the columns are plain names
	// without quotes.
	Table string
	// Where finds the one row, with Args as $1, $2 …: "id = $1". It becomes
	// part of statements: never build it from input of others.
	Where string
	Args  []any
	// The columns' names. The defaults are fence_key, fence_token, fence_grant
	// and fence_seq.
	Key, Token, Grant, Seq string
}

func (c Columns) statements(string) (*clerk.Resource, error) {
	mark := queryTexts().Must("mark")
	return clerk.Columns(c).Resource("$", mark, mark+" FOR UPDATE", queryTexts().Must("move"))
}

// ErrNoSuchRow is matched if the row that should carry the mark does not exist,
// or if there are several.
var ErrNoSuchRow = errors.New("there is not exactly one such row")
