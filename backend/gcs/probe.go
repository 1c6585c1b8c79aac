package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/objects"
)

// IgnoredError says that an endpoint ignores a condition that leases or guards
// rely on.
type IgnoredError struct {
	Bucket string
	// Condition is the condition that was tried, and what happened although it
	// did not hold.
	Condition string
}

func (e *IgnoredError) Error() string {
	return fmt.Sprintf("gcs: bucket %s: the endpoint does not honour %s; two owners would both be told that they won:"+
		" use Google Cloud Storage itself, or an emulator and proxies that pass conditions on", e.Bucket, e.Condition)
}

// probeAge is how long the result of a trial counts.
const probeAge = 7 * 24 * time.Hour

// trials has the trials that this process has made, by their name and endpoint.
var trials sync.Map

// once makes a trial at this endpoint, unless this process has seen it succeed.
func (b *bucket) once(what string, try func() error) error {
	key := what + " " + b.address
	if _, seen := trials.Load(key); seen {
		return nil
	}
	err := try()
	if err == nil {
		trials.Store(key, nil)
	}
	return err
}

// probed is the note of a successful trial in the bucket.
type probed struct {
	Format   int       `json:"croft"`
	Endpoint string    `json:"endpoint"`
	Honoured []string  `json:"honoured"`
	At       time.Time `json:"at"`
}

// probe makes sure that this endpoint honours conditional writes. It reads the
// note of an earlier trial in the bucket, or leaves one. So after the first
// time, opening a store costs one request.
func (r *register) probe(ctx context.Context) error {
	return r.once("writes", func() error {
		name := r.layout.Probe(r.address)
		note, err := r.get(ctx, name)
		if err != nil {
			return err
		}
		_, latest, known := r.bucket.clock.Span()
		var last probed
		if known && note.generation != 0 && json.Unmarshal(note.data, &last) == nil &&
			last.Format == objects.Format && last.Endpoint == r.address &&
			latest.Before(last.At.Add(probeAge)) && last.At.Before(latest.Add(time.Minute)) {
			return nil
		}
		if err := r.writesOnCondition(ctx, r.layout.Trial()); err != nil {
			return err
		}
		honoured := []string{"ifGenerationMatch=0", "ifGenerationMatch=N"}
		data, err := json.Marshal(probed{objects.Format, r.address, honoured, latest.UTC()})
		if err != nil {
			return err
		}
		// A mismatch is no error: another process has left the same note.
		if _, err := r.put(ctx, name, note.generation, append(data, '\n'), ""); !errors.Is(err, errMismatch) {
			return err
		}
		return nil
	})
}

// writesOnCondition tries the two conditions that leases rely on, on an object
// of its own.
func (b *bucket) writesOnCondition(ctx context.Context, name string) error {
	generation, err := b.trial(ctx, name)
	if err != nil {
		return err
	}
	defer b.removeTrial(ctx, name)
	for _, t := range []struct {
		old  int64
		what string
	}{
		{0, "ifGenerationMatch=0 (an object was created although there was one)"},
		{generation + 1, "ifGenerationMatch (an object was replaced although its generation was another)"},
	} {
		if _, err := b.put(ctx, name, t.old, nonce(), ""); err == nil {
			return &IgnoredError{b.name, t.what}
		} else if !errors.Is(err, errMismatch) {
			return err
		}
	}
	return nil
}

// deletesOnCondition tries whether a delete honours its condition, once in a
// process. Nothing depends on it: if it does not, tombstones stay.
func (b *bucket) deletesOnCondition(ctx context.Context, name string) (bool, error) {
	honoured := true
	err := b.once("deletes", func() error {
		generation, err := b.trial(ctx, name)
		if err != nil {
			return err
		}
		switch err := b.remove(ctx, name, generation+1); {
		case err == nil:
			honoured = false
			trials.Store("no deletes "+b.address, nil)
			return nil
		case !errors.Is(err, errMismatch):
			return err
		}
		return b.remove(ctx, name, generation)
	})
	if _, seen := trials.Load("no deletes " + b.address); seen {
		honoured = false
	}
	return honoured && err == nil, err
}

// changesOnCondition tries the other conditions that guards rely on: on the
// metageneration, and on the generation in changes of metadata and in copies.
func (b *bucket) changesOnCondition(ctx context.Context, name string) error {
	generation, err := b.trial(ctx, name)
	if err != nil {
		return err
	}
	defer b.removeTrial(ctx, name)
	changed := map[string]string{"croft-trial": "1"}
	now, err := b.patch(ctx, name, changed, &condition{generation: generation})
	switch {
	case err != nil:
		return b.explain(ctx, rightUpdate, err)
	case now.Metageneration < 2:
		return &IgnoredError{b.name, "metagenerations (a change of metadata did not count)"}
	}
	before, another := &condition{generation, 1}, &condition{generation + 1, now.Metageneration}
	update := func(c *condition) error {
		_, err := b.patch(ctx, name, changed, c)
		return err
	}
	replace := func(c *condition) error { return b.copy(ctx, name, 0, name, &storage.Object{}, c) }
	upload := func(c *condition) error {
		_, err := b.insert(ctx, &storage.Object{Name: name}, nonce(), c)
		return err
	}
	for _, t := range []struct {
		what string
		try  func(*condition) error
		on   *condition
	}{
		{"ifMetagenerationMatch on changes of metadata", update, before},
		{"ifGenerationMatch on changes of metadata", update, another},
		{"ifMetagenerationMatch on copies", replace, before},
		{"ifGenerationMatch on copies", replace, another},
		{"ifGenerationMatch=0 on copies", replace, absent},
		{"ifMetagenerationMatch on uploads", upload, before},
	} {
		switch err := t.try(t.on); judge(err) {
		case mismatch:
		case done:
			return &IgnoredError{b.name, t.what}
		default:
			return b.explain(ctx, rightUpdate, err)
		}
	}
	return nil
}

// trial makes an object for a trial.
func (b *bucket) trial(ctx context.Context, name string) (int64, error) {
	generation, err := b.put(ctx, name, 0, nonce(), "")
	if errors.Is(err, errMismatch) {
		err = &IgnoredError{b.name, "ifGenerationMatch=0 (it was refused although there was no object)"}
	}
	return generation, err
}

func (b *bucket) removeTrial(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = b.delete(ctx, name, nil) // nobody else knows its name
}

func nonce() []byte { return []byte(objects.NewNonce() + "\n") }
