package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestPackedRecordsAreTheSame makes random records by the law. Deciding on a
// packed record gives the same result as deciding on the whole one, also for
// late copies of old requests. Damage to any byte is noticed.
func TestPackedRecordsAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(1, 7e15).Draw(t, "now")).UTC()
		text := rapid.StringMatching(`[a-zé]{1,8}`)
		rec := tenure.Record{}
		key := text.Draw(t, "key")
		var secrets []tenure.Secret
		k := kept{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			req := tenure.Request{
				Verb: rapid.SampledFrom([]tenure.Verb{tenure.Acquire, tenure.Acquire, tenure.Renew, tenure.Report, tenure.Checkpoint, tenure.Release, tenure.Takeover, tenure.Reserve, tenure.Revoke}).Draw(t, "verb"),
				Key:  key, Owner: text.Draw(t, "owner"), Instance: text.Draw(t, "instance"), TTL: tenure.MinTTL + time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "ttl")),
				Every: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "every")), HoldFor: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "hold")),
				Guards: rapid.SliceOfN(text, 0, 3).Draw(t, "guards"), Progress: text.Draw(t, "progress"), Checkpoint: string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "checkpoint")),
				Actor: text.Draw(t, "actor"), Note: text.Draw(t, "note"),
				Failed: rapid.Bool().Draw(t, "failed"), Above: fence.Token(rapid.Int64Range(0, 1<<40).Draw(t, "above")),
			}
			switch {
			case len(secrets) == 0 || req.Verb == tenure.Acquire && rapid.IntRange(0, 4).Draw(t, "late") > 0 || req.Verb.ByHand():
				req.Secret = tenure.NewSecret()
				secrets = append(secrets, req.Secret)
			case rapid.IntRange(0, 4).Draw(t, "old") == 0:
				req.Secret = rapid.SampledFrom(secrets).Draw(t, "secret")
			default:
				req.Secret = secrets[len(secrets)-1]
			}
			next, changed, refused := tenure.Apply(rec, req, now)
			if refused == nil && changed {
				rec = next
			}
			gotChanged, gotRefused, err := k.decide(&req, now)
			if err != nil || gotChanged != (refused == nil && changed) || fmt.Sprint(gotRefused) != fmt.Sprint(refused) {
				t.Fatalf("%s: %t, %v, %v; the law says %t, %v", req.Verb, gotChanged, gotRefused, err, changed, refused)
			}
			if k, err = unpackedAgain(&k); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e13).Draw(t, "passed")))
		}
		if rec.IsZero() {
			return
		}
		packed, err := k.pack(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Guards) == 0 {
			rec.Guards = nil
		}
		if again, err := unpackWhole(key, packed); err != nil || !reflect.DeepEqual(again, rec) {
			t.Fatalf("%v\n%+v\n%+v", err, rec, again)
		}
		at := rapid.IntRange(0, len(packed)-1).Draw(t, "byte")
		flip := byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		packed[at] ^= flip
		if _, err := unpack(key, packed); !errors.Is(err, ErrDamaged) || errors.Is(err, fence.ErrInvalid) {
			t.Fatalf("byte %d was altered: %v", at, err)
		}
		packed[at] ^= flip
		if _, err := unpack("another", packed); !errors.Is(err, ErrDamaged) {
			t.Fatalf("moved to another key: %v", err)
		}
	})
}

// unpackedAgain packs a record and unpacks it again.
func unpackedAgain(k *kept) (kept, error) {
	if k.head.IsZero() {
		return *k, nil
	}
	packed, err := k.pack(nil)
	if err != nil {
		return kept{}, err
	}
	return unpack(k.head.Key, packed)
}

// FuzzUnpack checks that any bytes unpack to a valid record or an error, and
// never panic.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{packedV3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		packed := append([]byte{packedV3}, data...)
		sum := checksum("k", packed)
		packed = append(packed, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		if rec, err := unpackWhole("k", packed); err == nil && rec.Check() != nil {
			t.Errorf("%+v", rec)
		}
	})
}

// TestADamagedRecordDecidesNothing checks that nobody overwrites it either, and
// that it hides no other record.
func TestADamagedRecordDecidesNothing(t *testing.T) {
	t.Parallel()
	file := memoryDir(t) + "/croft.db"
	st := open(t, file, nil)
	defer st.Close()
	for _, key := range []string{"a", "b", "c"} {
		if a := one(st, acquire(key, "ann")); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	execute(t, file, "UPDATE croft_lease SET record = (SELECT record FROM croft_lease WHERE key = 'a') WHERE key = 'b'")
	answers := st.Apply(t.Context(), []tenure.Request{acquire("a", "bob"), acquire("b", "bob"), acquire("d", "bob")})
	if !errors.Is(answers[0].Err, tenure.ErrHeld) || !errors.Is(answers[1].Err, ErrDamaged) || answers[2].Err != nil {
		t.Errorf("%v, %v, %v", answers[0].Err, answers[1].Err, answers[2].Err)
	}
	if !strings.Contains(fmt.Sprint(answers[1].Err), "delete its row") {
		t.Errorf("it does not say what to do: %v", answers[1].Err)
	}
	var keys []string
	var failed error
	for rec, err := range st.List(t.Context(), "") {
		if err != nil {
			failed = err
			continue
		}
		keys = append(keys, rec.Key)
	}
	if strings.Join(keys, "") != "acd" || !errors.Is(failed, ErrDamaged) {
		t.Errorf("listed %v, %v", keys, failed)
	}
	if _, err := st.Get(t.Context(), "b"); !errors.Is(err, ErrDamaged) {
		t.Errorf("Get: %v", err)
	}
	findings, err := st.Examine(t.Context())
	must(t, err)
	if got := level(findings, "keys"); got != store.Bad {
		t.Errorf("the doctor calls the keys %q", got)
	}
	execute(t, file, "DELETE FROM croft_lease WHERE key = 'b'")
	if a := one(st, acquire("b", "bob")); a.Err != nil {
		t.Errorf("after it was deleted: %v", a.Err)
	}
}

// TestARecordOfAnotherVersionIsNotRead: the first version had no grid, and the
// second no checkpoint, so their fields lie elsewhere.
func TestARecordOfAnotherVersionIsNotRead(t *testing.T) {
	t.Parallel()
	rec, _, err := tenure.Apply(tenure.Record{}, acquire("k", "ann"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := (&kept{head: rec}).pack(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []byte{0, 1, 2, 4} {
		packed[0] = version
		body := packed[:len(packed)-4]
		binary.LittleEndian.PutUint32(packed[len(body):], checksum("k", body))
		if _, err := unpack("k", packed); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "another version") {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
