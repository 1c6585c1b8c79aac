package objects_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// TestTheTrueTimeIsWithinTheSpan: for all fractions of the second, delays and
// rates of the clocks.
func TestTheTrueTimeIsWithinTheSpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const grain = 2 * time.Second
		local := clock.NewManual(0)
		c := objects.NewClock(grain, local)
		truth := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start")))
		rate := rapid.Float64Range(0.953, 1.049).Draw(t, "rate")
		pass := func(d time.Duration) {
			local.Advance(d)
			truth = truth.Add(time.Duration(float64(d) * rate))
		}
		wait := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(t, "wait"))
		})
		if _, _, known := c.Span(); known {
			t.Fatal("a time is known before any response")
		}
		for range rapid.IntRange(1, 5).Draw(t, "responses") {
			sent := c.Local()
			pass(wait.Draw(t, "request") / 10)
			behind := time.Duration(rapid.Int64Range(0, int64(time.Second)-1).Draw(t, "behind"))
			date := truth.Add(-behind).Truncate(time.Second)
			if earliest, latest := c.At(date); truth.Before(earliest) || truth.After(latest) {
				t.Fatalf("%s is not between %s and %s", truth, earliest, latest)
			}
			pass(wait.Draw(t, "response") / 10)
			c.Observe(sent, c.Local(), date)
			pass(wait.Draw(t, "pause"))
			earliest, latest, known := c.Span()
			if !known || truth.Before(earliest) || truth.After(latest) {
				t.Fatalf("%s is not between %s and %s (%v)", truth, earliest, latest, known)
			}
		}
		pass(time.Hour)
		if _, _, known := c.Span(); known {
			t.Error("an hour after the last response the time is still reckoned")
		}
	})
}

func TestALateObservationReplacesNoNewerOne(t *testing.T) {
	local := clock.NewManual(clock.Instant(time.Hour))
	c, now := objects.NewClock(time.Second, local), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c.Observe(local.Now(), local.Now(), now)
	c.Observe(local.Now().Add(-time.Minute), local.Now(), now.Add(-time.Minute))
	if earliest, _, _ := c.Span(); !earliest.Equal(now) {
		t.Errorf("the time is %s, want %s", earliest, now)
	}
}

func record(t *testing.T, key string) tenure.Record {
	t.Helper()
	req := tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute}
	rec, _, err := tenure.Apply(tenure.Record{}, req, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestNoTwoBodiesAreTheSame(t *testing.T) {
	rec := record(t, "a/b")
	one, nonce, err := objects.Write(rec)
	two, other, _ := objects.Write(rec)
	if err != nil || string(one) == string(two) || nonce == other {
		t.Fatalf("%s and %s, %v", one, two, err)
	}
	body, err := objects.Read("x", one)
	if err != nil || body.Nonce != nonce || body.Dropped != nil || fmt.Sprint(*body.Record) != fmt.Sprint(rec) {
		t.Errorf("%+v, %v; want the record and the nonce %s", body, err, nonce)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dropped, _, _ := objects.WriteDropped("a/b", at)
	if body, err = objects.Read("x", dropped); err != nil || body.Record != nil || body.Dropped == nil || body.Dropped.Key != "a/b" || !body.Dropped.At.Equal(at) {
		t.Errorf("an announced deletion: %+v, %v", body, err)
	}
}

func TestADamagedObjectIsNamed(t *testing.T) {
	good, _, _ := objects.Write(record(t, "a/b"))
	for _, data := range []string{"", "{", "null", "[]", `{"croft":1}`, `{"croft":0,"nonce":"x","dropped":{}}`, `{"croft":1,"nonce":"x"}`, string(good) + "{}", string(good) + "]", string(good) + strings.Repeat(" ", objects.MaxBody), string(good[:len(good)/2])} {
		if _, err := objects.Read("leases/3f.json", []byte(data)); !errors.Is(err, cas.ErrDamaged) || !strings.Contains(err.Error(), "leases/3f.json") {
			t.Errorf("%.400q: %v, want damage that names the object", data, err)
		}
	}
	if _, err := objects.Read("x", []byte(`{"croft":2,"nonce":"x"}`)); err == nil || errors.Is(err, cas.ErrDamaged) {
		t.Errorf("a newer format: %v, want an error that is no damage", err)
	}
}

// TestAPlantedBodyTakesNoMemory: a term of 3 bytes takes 184 bytes in memory,
// and a listing keeps a thousand objects.
func TestAPlantedBodyTakesNoMemory(t *testing.T) {
	good, _, _ := objects.Write(record(t, "a/b"))
	planted := func(where, list, element string) []byte {
		many := strings.Repeat(element+",", (objects.MaxBody-len(good)-32)/(len(element)+1)) + element
		return []byte(strings.Replace(string(good), where, `"`+list+`":[`+many+`],"terms":`, 1))
	}
	for what, data := range map[string][]byte{
		"terms":  planted(`"terms":`, "history", "{}"),
		"guards": planted(`"terms":`, "GUARDS", `""`),
		"an owner": []byte(strings.Replace(string(good), `"owner":"ann"`,
			`"owner":"`+strings.Repeat("x", objects.MaxBody/2)+`"`, 1)),
	} {
		if len(data) <= len(good)+10 || len(data) > objects.MaxBody {
			t.Fatalf("%s: %d bytes are planted", what, len(data))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := objects.Read("leases/3f.json", data)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, cas.ErrDamaged) || errors.Is(err, fence.ErrInvalid) || b.Record != nil || len(err.Error()) > 1024 {
			t.Errorf("%s: %.300v and %v, want damage and no record", what, err, b.Record != nil)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*objects.MaxBody {
			t.Errorf("%s: %d bytes were allocated", what, took)
		}
	}
}

func TestNames(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "/": "", "team/croft": "team/croft/", "/team/": "team/"} {
		l, err := objects.NewLayout(prefix)
		if err != nil || l.Prefix() != want {
			t.Errorf("%q: %q, %v", prefix, l.Prefix(), err)
		}
		name := l.Record("jobs/daily")
		if !strings.HasPrefix(name, want+"leases/") || !l.IsRecord(name) || name == l.Record("jobs/Daily") || l.IsRecord(name+"x") || l.IsRecord(l.Records()+"readme.json") || l.IsRecord(l.Trial()) {
			t.Errorf("%q names a record %s", prefix, name)
		}
		if one, two := l.Trial(), l.Trial(); l.Probe("a") == l.Probe("b") || one == two {
			t.Error("two endpoints or two trials share an object")
		}
	}
	for _, bad := range []string{"a//b", "a/../b", "./a", "a\nb", "\xff", strings.Repeat("x", 600)} {
		if _, err := objects.NewLayout(bad); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var m objects.Memory
	rec := record(t, "k")
	for n := range 20000 {
		rec.Key = fmt.Sprint(n)
		m.Keep(rec, cas.Version(rec.Key))
	}
	if _, version, ok := m.Recall("19999"); !ok || version != "19999" {
		t.Errorf("the newest is not remembered: %q, %v", version, ok)
	}
	known := 0
	for n := range 20000 {
		if _, _, ok := m.Recall(fmt.Sprint(n)); ok {
			known++
		}
	}
	if known != 16384 {
		t.Errorf("%d are remembered", known)
	}
	m.Forget("19999")
	if _, _, ok := m.Recall("19999"); ok {
		t.Error("what was forgotten is remembered")
	}
}

// TestARecordUnderAnothersNameIsDamage: somebody who may write to one object
// must not say who holds the key of another.
func TestARecordUnderAnothersNameIsDamage(t *testing.T) {
	l, err := objects.NewLayout("croft")
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := objects.Write(record(t, "a/b"))
	dropped, _, _ := objects.WriteDropped("a/b", time.Now())
	for _, body := range [][]byte{data, dropped} {
		if _, err := l.Read(l.Record("a/b"), body); err != nil {
			t.Errorf("under its own name: %v", err)
		}
		if _, err := l.Read(l.Record("a/c"), body); !errors.Is(err, cas.ErrDamaged) || !strings.Contains(err.Error(), `"a/b"`) {
			t.Errorf("under another's name: %v, want damage", err)
		}
	}
}
