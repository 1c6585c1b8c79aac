package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// TestADamagedRecordIsNamedAndNeverReset: for every damage to a version file,
// the error names the file and the repair. The store decides and writes
// nothing, and other keys go on.
func TestADamagedRecordIsNamedAndNeverReset(t *testing.T) {
	t.Parallel()
	const key, beside = "damage/key", "damage/beside"
	p := newFixture(t)
	held := acquire(key, "ann")
	p.must(held)
	p.must(acquire(beside, "bob"))
	path := p.newest(key)
	p.Store = p.another(nil) // a handle that has not read the record before the damage
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(p.newest(beside))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"of another key":    other,
		"a line too many":   append(append([]byte{}, good...), "{}\n"...),
		"not JSON":          resum([]byte("token=7")),
		"no record of ours": resum([]byte(`{"key":"damage/key","ttl":"1m0s"}`)),
		"another's JSON":    []byte(`{"hello":"world"}` + "\n"),
	}
	for n := range good {
		bad[fmt.Sprintf("cut off after %d bytes", n)] = good[:n]
		flipped := append([]byte{}, good...)
		flipped[n] ^= 0x10
		bad[fmt.Sprintf("flipped at byte %d", n)] = flipped
	}
	for what, data := range bad {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, req := range []tenure.Request{acquire(key, "cleo"), then(tenure.Renew, held), then(tenure.Release, held)} {
			a := one(p.Store, req)
			var damaged *DamagedError
			if !errors.As(a.Err, &damaged) || damaged.Path != path || !errors.Is(a.Err, cas.ErrDamaged) || !errors.Is(a.Err, store.ErrUnknown) || errors.Is(a.Err, fence.ErrInvalid) {
				t.Fatalf("%s: %s answers %v", what, req.Verb, a.Err)
			}
			if text := a.Err.Error(); !strings.Contains(text, path) || !strings.Contains(text, "move it away") {
				t.Fatalf("%s: the answer does not name the file and the repair: %s", what, text)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(data) {
			t.Fatalf("%s: the damaged file was changed: %v", what, err)
		}
	}
	listed, failed := 0, error(nil)
	for rec, err := range p.List(t.Context(), "") {
		if err != nil {
			failed = err
			break
		}
		if rec.Key == beside {
			listed++
		}
	}
	if listed != 1 || !errors.Is(failed, cas.ErrDamaged) {
		t.Errorf("the key beside it is listed %d times, and then %v", listed, failed)
	}
	p.clock.Advance(2 * retention)
	if n, err := p.Sweep(t.Context()); n != 1 || !errors.Is(err, cas.ErrDamaged) {
		t.Errorf("a sweep drops %d of the others, %v", n, err)
	}
}

// resum appends to a line its right checksum.
func resum(line []byte) []byte { return append(append(line, '\n'), checksumLine(line)...) }

// TestADamagedRecordCanBeRepaired: by the repair that the error names.
func TestADamagedRecordCanBeRepaired(t *testing.T) {
	t.Parallel()
	const key = "damage/repair"
	p := newFixture(t)
	held := acquire(key, "ann")
	first := p.must(held).Record
	p.clock.Advance(time.Second)
	p.must(then(tenure.Renew, held))
	spoil := func() string {
		path := p.newest(key)
		if err := os.Truncate(path, 10); err != nil {
			t.Fatal(err)
		}
		p.Store = p.another(nil)
		if _, err := p.Get(t.Context(), key); !errors.Is(err, cas.ErrDamaged) {
			t.Fatalf("reading a truncated record: %v", err)
		}
		return path
	}
	if err := os.Rename(spoil(), filepath.Join(p.root, "away")); err != nil {
		t.Fatal(err)
	}
	if rec := p.get(key); !same(rec, first) {
		t.Errorf("with the newest version moved away the one before it counts: %+v", rec)
	}
	p.must(then(tenure.Renew, held))
	p.must(then(tenure.Release, held)) // prunes all versions before it
	if err := os.Rename(spoil(), filepath.Join(p.root, "away")); err != nil {
		t.Fatal(err)
	}
	if rec := p.get(key); !rec.IsZero() {
		t.Errorf("with the only version moved away the store still knows %+v", rec)
	}
	p.clock.Advance(time.Second)
	if a := p.must(acquire(key, "bob")); a.Record.Cause != tenure.First || a.Record.Token <= first.Token {
		t.Errorf("the key begins anew with cause %q and token %d after %d", a.Record.Cause, a.Record.Token, first.Token)
	}
}

// TestARecordPutInAnothersPlaceIsRead: a handle does not use its cached record
// for a restored file of the same name.
func TestARecordPutInAnothersPlaceIsRead(t *testing.T) {
	t.Parallel()
	const key = "damage/restored"
	p := newFixture(t)
	held := acquire(key, "ann")
	p.must(held)
	first, err := os.ReadFile(p.newest(key))
	if err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(time.Second)
	p.must(then(tenure.Renew, held)) // version 2, which this handle remembers
	path := p.newest(key)
	restored := filepath.Join(p.root, "restored")
	if err := os.WriteFile(restored, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(restored, path); err != nil {
		t.Fatal(err)
	}
	if rec := p.get(key); !rec.Renewed.Equal(rec.Acquired) {
		t.Errorf("the record that was replaced is still used: %+v", rec)
	}
}

// TestAHandleRemembersAFewRecords: the cache is bounded; other records are read
// again.
func TestAHandleRemembersAFewRecords(t *testing.T) {
	t.Parallel()
	var c recall
	file, err := os.Stat(".")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * recallMost {
		c.keep(fmt.Sprint(i), position{"life", 1}, tenure.Record{}, file)
		if _, known := c.version(fmt.Sprint(i), position{"life", 1}, file); !known {
			t.Fatalf("record %d was forgotten at once", i)
		}
	}
	if len(c.known) != recallMost {
		t.Errorf("%d records are kept in memory", len(c.known))
	}
}

// TestTwoLivesAreDamage: the store does not guess which life counts after two
// stores were copied together.
func TestTwoLivesAreDamage(t *testing.T) {
	t.Parallel()
	const key = "damage/lives"
	p := newFixture(t)
	p.must(acquire(key, "ann"))
	if err := os.Mkdir(filepath.Join(filepath.Dir(p.folder(key)), newLife(time.Now())), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := p.another(nil).Get(t.Context(), key)
	if !errors.Is(err, cas.ErrDamaged) || !strings.Contains(err.Error(), p.reg.home(hashOf(key))) {
		t.Errorf("two lives of one key: %v", err)
	}
}

// TestForeignFilesAreLeftAlone: the store neither reads nor removes files
// that people and file browsers put into its folders.
func TestForeignFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	const key = "damage/foreign"
	p := newFixture(t)
	held := acquire(key, "ann")
	p.must(held)
	old := time.Now().Add(-10 * leftoverAge)
	foreign := []string{
		filepath.Join(p.folder(key), ".DS_Store"),
		filepath.Join(p.folder(key), "99999999999999999999999.json"),
		filepath.Join(filepath.Dir(p.folder(key)), ".nfs0001"),
		filepath.Join(p.reg.keys, "README"),
		filepath.Join(p.reg.tmp, "notes.txt"),
		filepath.Join(p.reg.tmp, "croft-new-plan"),
	}
	for _, path := range foreign {
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	p.must(then(tenure.Renew, held))
	p.must(then(tenure.Release, held))
	if _, err := p.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	for _, path := range foreign {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("it was removed: %v", err)
		}
	}
	// A foreign file in the way of a birth is named, not removed.
	if err := os.RemoveAll(p.folder(key)); err != nil {
		t.Fatal(err)
	}
	if a := p.Apply(context.Background(), []tenure.Request{acquire(key, "bob")}); a[0].Err == nil || !strings.Contains(a[0].Err.Error(), ".nfs0001") {
		t.Errorf("a folder that holds a foreign file: %v", a[0].Err)
	}
}
