package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// In these tests a neighbour may write to some of the store's keys: the ACL of
// a shared server allows that user too much. The neighbour can take leases that
// way. It must not be able to do more.

// TestAQueueTooLongStopsNoServer plants a queue of waiters that is megabytes
// long. A script that walked through all of it would stop the server, and could
// not be killed after its first write.
func TestAQueueTooLongStopsNoServer(t *testing.T) {
	t.Parallel()
	server := testenv.RedisAlone(t)
	neighbour := dial(t, server)
	st := New(dialWith(t, server, &goredis.Options{ReadTimeout: testenv.Patience}), nil)
	t.Cleanup(func() { st.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience/2)
	defer cancel()
	mine := claim("queue/long", "ann")
	if a := one(ctx, st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	name := st.names.record(mine.Key)
	record := []byte(neighbour.HGet(ctx, name, "r").Val())
	record[waitedAt] = 1
	queue := strings.Repeat("neighbor\x00\x00\x00\x00\x00\x00\x00\x00", 1<<19) // 8 MiB of stores that asked long ago
	grants := strings.Repeat("gg", 1<<20)
	if err := neighbour.HSet(ctx, name, "r", record, "w", queue, "g", grants).Err(); err != nil {
		t.Fatal(err)
	}
	if a := one(ctx, st, then(tenure.Release, mine)); a.Err != nil {
		t.Errorf("a release: %v", a.Err)
	}
	if a := one(ctx, st, claim(mine.Key, "bob")); a.Err != nil {
		t.Errorf("the next claim: %v", a.Err)
	}
	if n := neighbour.HStrLen(ctx, name, "g").Val(); n > 62 {
		t.Errorf("%d bytes of grants were written again", n)
	}
}

// TestAPlantedTermForgesNoAnswer plants a term whose length does not fit into
// its two bytes. The answers of a batch follow each other, so the rest of the
// term would be read as the answer about another key.
func TestAPlantedTermForgesNoAnswer(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	mine, theirs := claim("forged/mine", "ann"), claim("forged/theirs", "zoe")
	hand := tenure.Request{Verb: tenure.Revoke, Key: mine.Key, Secret: tenure.NewSecret(), Actor: "op", Note: "test"}
	for _, a := range st.Apply(ctx, []tenure.Request{mine, hand, theirs}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	held := st.names.record(theirs.Key)
	forged := "d" + neighbour.HGet(ctx, held, "r").Val() + neighbour.HGet(ctx, held, "x").Val()
	term := forged + strings.Repeat("x", 1<<16-len(forged)) // a length of 0, in two bytes
	if err := neighbour.HSet(ctx, st.names.record(mine.Key), "Z", term).Err(); err != nil {
		t.Fatal(err)
	}
	answers := st.Apply(ctx, []tenure.Request{then(tenure.Renew, mine), claim(theirs.Key, "ann")})
	if !errors.Is(answers[0].Err, tenure.ErrNotOwned) || !errors.Is(answers[1].Err, tenure.ErrHeld) {
		t.Errorf("the one that was revoked: %v; the one that zoe holds: %v", answers[0].Err, answers[1].Err)
	}
}

// spoilt plants a record: it turns the fields r and x of a sound one into those
// that a neighbour writes.
type spoilt func(r []byte, x string) string

// number spoils the number at an offset of the record.
func number(at int, value float64) spoilt {
	return func(r []byte, x string) string {
		binary.LittleEndian.PutUint64(r[at:], math.Float64bits(value))
		return x
	}
}

// TestAPlantedCheckpointSpoilsNoAnswerBesideIt: its length must be right.
// Otherwise the answers after it could not be read.
func TestAPlantedCheckpointSpoilsNoAnswerBesideIt(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	for n, planted := range []string{"", "\x01", "\x05\x00page", "\x00\x00page", "\x01\x04" + strings.Repeat("x", 1025)} {
		mine, sound := claim(fmt.Sprint("saved/a", n), "ann"), claim(fmt.Sprint("saved/b", n), "ann")
		alone := claim(fmt.Sprint("saved/c", n), "ann")
		for _, a := range st.Apply(ctx, []tenure.Request{mine, sound}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		for _, key := range []string{mine.Key, alone.Key} { // of alone, only the checkpoint is there
			if err := neighbour.HSet(ctx, st.names.record(key), "c", planted).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got := st.Apply(ctx, []tenure.Request{then(tenure.Renew, mine), alone, then(tenure.Renew, sound)})
		if !errors.Is(got[0].Err, ErrDamaged) || !errors.Is(got[1].Err, ErrDamaged) || got[2].Err != nil {
			t.Errorf("%.10q: %v and %v, want damaged; the one beside it: %v", planted, got[0].Err, got[1].Err, got[2].Err)
		}
		if _, err := st.Get(ctx, mine.Key); !errors.Is(err, ErrDamaged) {
			t.Errorf("%.10q: Get says %v, want damaged", planted, err)
		}
	}
}

// TestAPlantedRecordSpoilsNoAnswerBesideIt checks that a batch does not fail at
// a record that another program has written.
func TestAPlantedRecordSpoilsNoAnswerBesideIt(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	const lengths = 126                 // of the record's texts and guards
	const beyond = "a token beyond all" // the script takes it, Go does not
	for what, c := range map[string]struct {
		verb  tenure.Verb
		spoil spoilt
	}{
		"no state":            {tenure.Renew, func(r []byte, x string) string { r[0] = 0; return x }},
		"no known state":      {tenure.Renew, func(r []byte, x string) string { r[0] = 4; return x }},
		"matters forever":     {tenure.Renew, number(35, math.Inf(1))},
		"never ends":          {tenure.Renew, number(11, 1e300)},
		"always renewed":      {tenure.Report, number(19, math.Inf(1))},
		"lasts forever":       {tenure.Renew, number(27, math.Inf(1))},
		"no number":           {tenure.Renew, number(35, math.NaN())},
		"held forever":        {tenure.Release, number(59, math.Inf(1))},
		"slots without end":   {tenure.Release, number(51, math.Inf(1))},
		"an endless term":     {tenure.Release, number(78, math.Inf(1))},
		"no token":            {tenure.Revoke, number(86, math.NaN())},
		"acquired forever":    {tenure.Release, number(94, math.Inf(1))},
		beyond:                {tenure.Renew, number(86, 1<<54)},
		"a token below all":   {tenure.Renew, number(86, -1e300)},
		"progress at no time": {tenure.Renew, number(67, math.NaN())},
		"no known end":        {tenure.Renew, func(r []byte, x string) string { r[1] = 6; return x }},
		"no known cause":      {tenure.Renew, func(r []byte, x string) string { r[77] = 8; return x }},
		"no words": {tenure.Acquire, func(r []byte, _ string) string {
			r[0] = 3
			clear(r[lengths:])
			return ""
		}},
		"words cut off": {tenure.Acquire, func(r []byte, x string) string {
			r[0] = 3
			binary.LittleEndian.PutUint16(r[lengths:], uint16(len(x)-1))
			return x[:len(x)-1]
		}},
		"words without end": {tenure.Acquire, func(r []byte, x string) string {
			r[0] = 3
			note := 65535 - len(x)
			x = x[:len(x)-2] + string([]byte{byte(note), byte(note >> 8)}) + strings.Repeat("x", note)
			binary.LittleEndian.PutUint16(r[lengths:], uint16(len(x)))
			return x
		}},
	} {
		spoiltOne, sound := claim("spoilt/a "+what, "ann"), claim("spoilt/b "+what, "ann")
		for _, a := range st.Apply(ctx, []tenure.Request{spoiltOne, sound}) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		name := st.names.record(spoiltOne.Key)
		r := []byte(neighbour.HGet(ctx, name, "r").Val())
		x := c.spoil(r, neighbour.HGet(ctx, name, "x").Val())
		if err := neighbour.HSet(ctx, name, "r", r, "x", x).Err(); err != nil {
			t.Fatal(err)
		}
		ask := then(c.verb, spoiltOne)
		switch c.verb {
		case tenure.Acquire:
			ask = claim(spoiltOne.Key, "ann")
			ask.Instance = strings.Repeat("i", tenure.MaxName)
		case tenure.Revoke:
			ask.Secret, ask.Actor, ask.Note = tenure.NewSecret(), "op", "test"
		}
		got := st.Apply(ctx, []tenure.Request{ask, then(tenure.Renew, sound)})
		if !errors.Is(got[0].Err, ErrDamaged) || got[1].Err != nil {
			t.Errorf("%s: %v, want damaged; the one beside it: %v, want renewed", what, got[0].Err, got[1].Err)
		}
		if now := neighbour.HGet(ctx, name, "r").Val(); now != string(r) && what != beyond {
			t.Errorf("%s: the record was written over", what)
		}
	}
}

// TestAPlantedRecordForgesNoAnswer plants a record that begins with a zero. It
// must not be read as no record, with the rest as the answer about another key.
func TestAPlantedRecordForgesNoAnswer(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	planted, lost := claim("forged/a", "ann"), claim("forged/b", "ann")
	for _, a := range st.Apply(ctx, []tenure.Request{planted, lost}) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	held := neighbour.HGetAll(ctx, st.names.record(lost.Key)).Val()
	hand := tenure.Request{Verb: tenure.Revoke, Key: lost.Key, Secret: tenure.NewSecret(), Actor: "op", Note: "test"}
	if a := one(ctx, st, hand); a.Err != nil {
		t.Fatal(a.Err)
	}
	// The forged answer swallows the true one about the second key, as the
	// progress of its lease.
	truth := 1 + 2
	for field, value := range neighbour.HGetAll(ctx, st.names.record(lost.Key)).Val() {
		if field != "g" {
			truth += len(value)
		}
	}
	forged := []byte(held["r"])
	binary.LittleEndian.PutUint64(forged[35:], 0x42f0_7e00_0000_0000) // the planted record is not yet gone
	binary.LittleEndian.PutUint16(forged[67:], uint16(truth))
	binary.LittleEndian.PutUint16(forged[116:], uint16(2+len(held["x"])-(int(forged[118])|int(forged[119])<<8))) // its lengths add up
	whole := "\x00d" + string(forged) + held["x"]
	if err := neighbour.HSet(ctx, st.names.record(planted.Key), "r", whole[:recordSize], "x", whole[recordSize:]).Err(); err != nil {
		t.Fatal(err)
	}
	answers := st.Apply(ctx, []tenure.Request{then(tenure.Renew, planted), then(tenure.Renew, lost)})
	if !errors.Is(answers[0].Err, ErrDamaged) || !errors.Is(answers[1].Err, tenure.ErrNotOwned) {
		t.Errorf("the planted one: %v, want damaged; the one that was revoked: %v, want not owned", answers[0].Err, answers[1].Err)
	}
}

// TestAPlantedRecordStopsNoTidying checks that large batches still tidy the
// index.
func TestAPlantedRecordStopsNoTidying(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	for what, spoil := range map[string]spoilt{
		"no number":       number(3, math.NaN()),
		"no end":          number(3, math.Inf(1)),
		"matters to none": number(35, math.NaN()),
		"an endless score": func(_ []byte, x string) string {
			neighbour.ZAdd(ctx, st.names.index("tidy"), goredis.Z{Score: math.Inf(1), Member: "tidy/endless"})
			return x
		},
	} {
		mine := claim("tidy/a "+what, "ann")
		if a := one(ctx, st, mine); a.Err != nil {
			t.Fatal(a.Err)
		}
		name := st.names.record(mine.Key)
		r := []byte(neighbour.HGet(ctx, name, "r").Val())
		spoil(r, "")
		neighbour.HSet(ctx, name, "r", r)
		neighbour.ZAdd(ctx, st.names.index("tidy"), goredis.Z{Score: 1, Member: mine.Key})
		var many []tenure.Request
		for n := range 40 {
			many = append(many, claim(fmt.Sprint("tidy/", what, n), "ann"))
		}
		for _, a := range st.Apply(ctx, many) {
			if a.Err != nil {
				t.Errorf("%s: %v", what, a.Err)
				break
			}
		}
		if neighbour.Exists(ctx, name).Val() != 1 {
			t.Errorf("%s: the record is gone", what)
		}
	}
}

// TestManyPlantedRecordsStopNoTidying plants records with the lowest scores,
// which large batches look at first.
func TestManyPlantedRecordsStopNoTidying(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	good, index := claim("tidy/good", "ann"), st.names.index("tidy")
	if a := one(ctx, st, good); a.Err != nil {
		t.Fatal(a.Err)
	}
	record := neighbour.HGet(ctx, st.names.record(good.Key), "r").Val()
	plants := neighbour.Pipeline()
	for what, spoil := range map[string]spoilt{
		"no number":     number(35, math.NaN()),
		"too long":      func(_ []byte, _ string) string { return "x" },
		"over, it says": number(3, 1),
	} {
		for n := range 100 {
			r := []byte(record)
			behind := spoil(r, "")
			key := fmt.Sprint("tidy/", what, n)
			plants.HSet(ctx, st.names.record(key), "r", string(r)+behind)
			plants.ZAdd(ctx, index, goredis.Z{Score: 1, Member: key})
		}
	}
	for n := range 10 {
		plants.ZAdd(ctx, index, goredis.Z{Score: 2, Member: fmt.Sprint("tidy/expired", n)})
	}
	if _, err := plants.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		var many []tenure.Request
		for n := range 40 {
			many = append(many, claim(fmt.Sprint("tidy/", round, "/", n), "ann"))
		}
		for _, a := range st.Apply(ctx, many) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	if left := neighbour.ZCount(ctx, index, "-inf", "2").Val(); left > 0 {
		t.Errorf("%d old entries are left", left)
	}
	if stay := neighbour.ZScore(ctx, index, "tidy/no number0"); stay.Err() != nil {
		t.Errorf("a damaged record is in no listing any more: %v", stay.Err())
	}
}

// TestPlantedRecordsAreBoundedAndHideNothing checks that reads of them are
// short, and that a listing yields all others.
func TestPlantedRecordsAreBoundedAndHideNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	good := claim("planted/good", "ann")
	if a := one(ctx, st, good); a.Err != nil {
		t.Fatal(a.Err)
	}
	record, words := neighbour.HGet(ctx, st.names.record(good.Key), "r").Val(), neighbour.HGet(ctx, st.names.record(good.Key), "x").Val()
	large := strings.Repeat("x", 8<<20)
	lawless := []byte(record)
	number(78, -5)(lawless, "")
	for name, fields := range map[string][]any{
		"planted/a low token":    {"r", lawless, "x", words},
		"planted/a large record": {"r", record + large, "x", words},
		"planted/large texts":    {"r", record, "x", words + large},
		"planted/a large term":   {"r", record, "x", words, "A", large},
	} {
		if err := neighbour.HSet(ctx, st.names.record(name), fields...).Err(); err != nil {
			t.Fatal(err)
		}
		neighbour.ZAdd(ctx, st.names.index("planted"), goredis.Z{Member: name})
		text, err := neighbour.Eval(ctx, st.read.source, []string{st.names.record(name)}, "", st.retention.Microseconds(), "1").StringSlice()
		if err != nil || len(text) != 1 || len(text[0]) > 1<<20 {
			t.Errorf("%s: %d texts, %v; want one that is short", name, len(text), err)
		}
		if _, err := st.Get(ctx, name); !errors.Is(err, ErrDamaged) || errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want damaged", name, err)
		}
	}
	// These names are not the store's: one is of another namespace, the other
	// is no key.
	for _, member := range []string{"other/secret", "planted/../x", "planted/\x1b[2Jx"} {
		neighbour.ZAdd(ctx, st.names.index("planted"), goredis.Z{Member: member})
		neighbour.HSet(ctx, st.names.record(member), "r", record, "x", words)
	}
	var keys []string
	var failed error
	for rec, err := range st.List(ctx, "") {
		if failed = err; err == nil {
			keys = append(keys, rec.Key)
		}
	}
	// A listing does not read the terms, so it finds a record sound whose terms
	// are damaged.
	if strings.Join(keys, " ") != "planted/a large term planted/good" || !errors.Is(failed, ErrDamaged) || !errors.Is(failed, store.ErrUnknown) {
		t.Errorf("listed %q, then %.200v", keys, failed)
	}
}

// TestManyDamagedRecordsMakeAShortError checks listings with many damaged
// records, and with many damaged indexes.
func TestManyDamagedRecordsMakeAShortError(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"records", "indexes"} {
		server := testenv.Redis(t)
		neighbour, ctx := dial(t, server), t.Context()
		st := New(neighbour, &Options{Prefix: server.Prefix()})
		t.Cleanup(func() { st.Close() })
		plants := neighbour.Pipeline()
		for n := range 500 { // they are read in several parts
			key := fmt.Sprint("planted/", n)
			if what == "records" {
				plants.HSet(ctx, st.names.record(key), "r", "x")
				plants.ZAdd(ctx, st.names.index("planted"), goredis.Z{Member: key})
			} else {
				plants.Set(ctx, st.names.index(fmt.Sprint("planted", n)), "x", 0)
			}
		}
		if _, err := plants.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		var failed error
		for _, err := range st.List(ctx, "") {
			failed = err
		}
		if !errors.Is(failed, ErrDamaged) || !strings.HasSuffix(failed.Error(), "and 490 more") {
			t.Errorf("%s: %.5000v", what, failed)
		}
	}
}

// TestAPlantedIndexHidesNoOther checks that it also takes no lease away.
func TestAPlantedIndexHidesNoOther(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	st := New(neighbour, &Options{Prefix: server.Prefix()})
	t.Cleanup(func() { st.Close() })
	for _, namespace := range []string{"planted", "evil"} {
		if err := neighbour.Set(ctx, st.names.index(namespace), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mine, good := claim("planted/mine", "ann"), claim("sound/good", "ann")
	for _, req := range []tenure.Request{mine, mine, good, then(tenure.Renew, mine)} {
		if a := one(ctx, st, req); a.Err != nil {
			t.Errorf("%s: %v", req.Verb, a.Err)
		}
	}
	if a := one(ctx, st, claim(mine.Key, "bob")); !errors.Is(a.Err, tenure.ErrHeld) { // refused: nothing is written
		t.Errorf("a second claim: %v, want held", a.Err)
	}
	if a := one(ctx, st, then(tenure.Release, mine)); a.Err != nil {
		t.Error(a.Err)
	}
	// These members are longer than any key, and so many that they fill several
	// pages.
	long := strings.Repeat("x", 8<<20)
	neighbour.ZAdd(ctx, st.names.index("sound"), goredis.Z{Member: "sound/" + long})
	page, err := neighbour.Eval(ctx, keysScript().source, []string{st.names.index("sound")}, "0").StringSlice()
	if err != nil || len(strings.Join(page, "")) > 1<<20 {
		t.Errorf("a page of %d bytes, %v", len(strings.Join(page, "")), err)
	}
	many := []string{good.Key}
	for n := range 3000 {
		many = append(many, fmt.Sprint("sound/", n))
		neighbour.ZAdd(ctx, st.names.index("sound"), goredis.Z{Score: float64(n), Member: many[n+1]})
	}
	slices.Sort(many)
	if keys, err := st.keys(ctx, "sound/"); !slices.Equal(keys.found, many) || err != nil {
		t.Errorf("%d keys of %d, %v", len(keys.found), len(many), err)
	}
	var keys []string
	var failed error
	for rec, err := range st.List(ctx, "") {
		if failed = err; err == nil {
			keys = append(keys, rec.Key)
		}
	}
	if !slices.Equal(keys, []string{good.Key}) || !errors.Is(failed, ErrDamaged) || !errors.Is(failed, store.ErrUnknown) {
		t.Errorf("listed %q, then %v", keys, failed)
	}
}

// TestAPlantedMarkIsBoundedAndAdmitsNothing plants marks that no guard writes.
func TestAPlantedMarkIsBoundedAndAdmitsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, ctx := dial(t, server), t.Context()
	large := strings.Repeat("x", 8<<20)
	for name, fields := range map[string][]any{
		"a large key":         {"key", large},
		"a large grant":       {"grant", large},
		"a token of all ones": {"token", strings.Repeat("9", 30)},
		"a token in hex":      {"token", "0x1"},
		"no number":           {"token", "nan"},
		"an endless token":    {"token", "-inf"},
		"a negative token":    {"token", "-5"},
		"a key that is none":  {"key", "a//b"},
		"a number of zeros":   {"token", "9007199254740991", "seq", "00"},
		"a token after zeros": {"token", "0000000000000001"},
	} {
		key := server.Prefix() + "planted " + name
		g, err := OpenGuard(neighbour, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(ctx, stamp(10, 1, 0), strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
		if err := neighbour.HSet(ctx, g.mark, fields...).Err(); err != nil {
			t.Fatal(err)
		}
		_, writeErr := g.Write(ctx, stamp(20, 2, 0), strings.NewReader("never"))
		_, raiseErr := g.Raise(ctx, stamp(20, 2, 0))
		_, markErr := g.Mark(ctx)
		bounded, cancel := context.WithTimeout(ctx, testenv.Patience)
		_, resetErr := g.Reset(bounded, 15, "ann", "it was planted")
		cancel()
		for act, err := range map[string]error{"write": writeErr, "raise": raiseErr, "look": markErr, "reset": resetErr} {
			refused := errors.Is(err, ErrMarkDamaged) || act != "look" && act != "reset" && name == "a key that is none" && errors.Is(err, fence.ErrWrongKey)
			if !refused || len(err.Error()) > 4096 {
				t.Errorf("%s: a %s: %.200v, want damaged", name, act, err)
			}
		}
		if got := neighbour.Get(ctx, key).Val(); got != "content" {
			t.Errorf("%s: the content is now %q", name, got)
		}
	}
}

// restless moves a mark after each time that it is read.
type restless struct {
	mark      string
	neighbour *goredis.Client
}

func (r restless) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (r restless) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (r restless) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hmget" {
			err = errors.Join(err, r.neighbour.HIncrBy(ctx, r.mark, "seq", 1).Err())
		}
		return err
	}
}

// TestAResetEndsWhileANeighbourMovesTheMark checks that Reset gives up.
func TestAResetEndsWhileANeighbourMovesTheMark(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	neighbour, client, ctx := dial(t, server), dial(t, server), t.Context()
	g, err := OpenGuard(client, server.Prefix()+"restless", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := neighbour.HSet(ctx, g.mark, "key", "jobs/daily", "token", int64(fence.MaxToken), "grant", "", "seq", 0).Err(); err != nil {
		t.Fatal(err)
	}
	client.AddHook(restless{g.mark, neighbour})
	if _, err := g.Reset(ctx, 15, "ann", "it was planted"); !errors.Is(err, guard.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	if token := neighbour.HGet(ctx, g.mark, "token").Val(); token != "9007199254740991" {
		t.Errorf("the token is now %s", token)
	}
}

// TestAServerMustShowItsCertificate checks that no URL turns this off.
func TestAServerMustShowItsCertificate(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"rediss://localhost:1/0?skip_verify=true", "rediss://localhost:1/0?skip_verify=true&cluster=true"} {
		if _, err := store.Open(t.Context(), raw); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
	}
}
