package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/croft-dev/croft/internal/clerk"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Lists travel to the server as JSON, because every driver can carry a text.

// list returns the JSON of values that always have one.
func list[T any](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

// maybe returns nil, which is NULL, for an empty list.
func maybe[T any](values []T) *string {
	if len(values) == 0 {
		return nil
	}
	text := list(values)
	return &text
}

func itemList(items []work.Item) (string, error) {
	rows := make([]clerk.Item, len(items))
	for i, it := range items {
		var err error
		if rows[i], err = clerk.Row(it); err != nil {
			return "", err
		}
	}
	return list(rows), nil
}

func effectList(effects []work.Effect) string {
	rows := make([]clerk.Effect, len(effects))
	for i, e := range effects {
		rows[i] = clerk.EffectRow(e)
	}
	return list(rows)
}

func readItems(rows []string) (items []work.Item, damage clerk.Damage, err error) {
	items = make([]work.Item, 0, len(rows))
	for _, text := range rows {
		var row clerk.Item
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, nil, fmt.Errorf("a row of the table item cannot be read: %w", err)
		}
		items, damage = clerk.Sound(row, items, damage)
	}
	return items, damage, nil
}

// claimedRow is an item in the answer to a claim. At its first claim an item
// has only the fields that the claimant does not know already. Otherwise it is
// complete.
type claimedRow struct {
	clerk.Item
	First *int64 `json:"first"` // the time of the first claim
}

// whole fills in the fields that the claimant knows.
func (row *claimedRow) whole(c work.Claim, grant string) clerk.Item {
	it := row.Item
	if row.First == nil {
		return it
	}
	ttl := micro(c.TTL)
	deadline := *row.First + ttl
	it.State, it.Attempts, it.Terms = string(work.Running), 1, 1
	it.Grant, it.Owner, it.Instance = &grant, c.Owner, c.Instance
	it.Held, it.Cause = string(tenure.Held), string(tenure.First)
	it.Acquired, it.Renewed, it.Deadline, it.TTL = row.First, row.First, &deadline, &ttl
	return it
}

func readClaimed(rows []string, c work.Claim) (items []work.Item, damage clerk.Damage, err error) {
	items = make([]work.Item, 0, len(rows))
	grant := string(c.Secret.Grant())
	for _, text := range rows {
		var row claimedRow
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, nil, fmt.Errorf("a row of the table item cannot be read: %w", err)
		}
		items, damage = clerk.Sound(row.whole(c, grant), items, damage)
	}
	return items, damage, nil
}

func readEffects(rows []string) ([]work.Effect, error) {
	effects := make([]work.Effect, len(rows))
	for i, text := range rows {
		var row clerk.Effect
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, fmt.Errorf("a row of the table effect cannot be read: %w", err)
		}
		effects[i] = row.Read()
	}
	return effects, nil
}
