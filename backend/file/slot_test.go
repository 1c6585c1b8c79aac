package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// slotImageOf is a sidecar that holds these states, each in its slot.
func slotImageOf(states ...slotState) []byte {
	image := slices.Clone(slotBirth)
	for _, s := range states {
		copy(image[s.offset():], s.encode())
	}
	return image
}

// slotSample is the state of a generation. Its token is the generation's
// number.
func slotSample(generation uint64) slotState {
	s := slotState{generation: generation, writes: generation, changed: time.Unix(1763171234, 567891000).UTC()}
	s.mark = fence.Mark{Key: "tests/job", Token: fence.Token(generation), Grant: fence.Grant(strings.Repeat("0a", 16))}
	if generation%3 == 0 { // slots of different length
		s.rekeyed = guard.Rekeyed{From: "tests/old", Actor: "ann", Note: strings.Repeat("why ", 100), At: s.changed}
	}
	return s
}

func TestSlotReadsBackWhatItWrote(t *testing.T) {
	line := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringOfN(rapid.RuneFrom([]rune("abc /:%äß語 \"'\\")), 0, 60, -1).Draw(t, "text")
	})
	rapid.Check(t, func(t *rapid.T) {
		s := slotState{
			generation: rapid.Uint64().Draw(t, "generation"),
			mark: fence.Mark{
				Key: line.Draw(t, "key"), Token: fence.Token(rapid.Int64Range(0, int64(fence.MaxToken)).Draw(t, "token")),
				Grant: fence.Grant(rapid.StringMatching(`([0-9a-f]{32})?`).Draw(t, "grant")), Seq: rapid.Uint64().Draw(t, "seq"),
			},
			writes:  rapid.Uint64().Draw(t, "writes"),
			changed: time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC(),
		}
		if rapid.Bool().Draw(t, "rekeyed") {
			s.rekeyed = guard.Rekeyed{From: line.Draw(t, "from"), Actor: line.Draw(t, "actor"), Note: line.Draw(t, "note"), At: s.changed.Add(time.Hour)}
		}
		got, err := slotDecode(s.encode())
		if err != nil || got != s {
			t.Fatalf("%+v read back as %+v, %v", s, got, err)
		}
	})
}

func TestSlotHoldsTheLongestThereCanBe(t *testing.T) {
	s := slotState{generation: 1<<64 - 1, writes: 1<<64 - 1, changed: time.Now()}
	s.mark = fence.Mark{Key: strings.Repeat("k", fence.MaxKey), Token: fence.MaxToken, Grant: fence.Grant(strings.Repeat("f", 32)), Seq: 1<<64 - 1}
	s.rekeyed = guard.Rekeyed{From: strings.Repeat("o", fence.MaxKey), Actor: strings.Repeat("a", guard.MaxActor), Note: strings.Repeat("n", guard.MaxNote), At: time.Now()}
	if _, err := slotDecode(s.encode()); err != nil {
		t.Error(err)
	}
}

func TestSlotTornAnywhereLeavesTheOther(t *testing.T) {
	for generation := uint64(2); generation < 5; generation++ { // slots of equal length, longer and shorter
		image := slotImageOf(slotSample(generation-1), slotSample(generation))
		next := slotSample(generation + 1)
		for n := 0; n < slotSize; n += 1 + n/700*30 { // every byte of the text, then fewer
			torn := slices.Clone(image)
			copy(torn[next.offset():], next.encode()[:n])
			got, born, err := slotNewest(torn)
			if err != nil || !born {
				t.Fatalf("generation %d torn after %d bytes: %v", next.generation, n, err)
			}
			// Once every differing byte is written, the torn slot equals the
			// whole one.
			if got != slotSample(generation) && (got != next || !bytes.Equal(torn, slotImageOf(slotSample(generation), next))) {
				t.Fatalf("generation %d torn after %d bytes reads as %+v", next.generation, n, got)
			}
		}
	}
}

func TestSidecarCutShortIsNeverTakenForANewOne(t *testing.T) {
	image := slotImageOf(slotSample(1), slotSample(2))
	for n := 1; n < len(image); n += 1 + n%2 {
		if s, _, err := slotNewest(image[:n]); err == nil {
			t.Fatalf("cut to %d bytes it reads as %+v", n, s)
		}
	}
	if s, _, err := slotNewest(append(image, 'x')); err == nil {
		t.Errorf("with a byte too many it reads as %+v", s)
	}
}

func TestSidecarIsBornWithoutAMarkHoweverFarItGot(t *testing.T) {
	for n := range slotBirth {
		if s, born, err := slotNewest(slotBirth[:n]); err != nil || born || s != (slotState{}) {
			t.Fatalf("%d bytes of birth: %+v, %v, %v; want not born", n, s, born, err)
		}
	}
	if s, born, err := slotNewest(make([]byte, len(slotUnborn))); err != nil || born || s != (slotState{}) {
		t.Fatalf("its first line lost in a power cut: %+v, %v, %v; want not born", s, born, err)
	}
	if s, born, err := slotNewest(slotBirth); err != nil || !born || s != (slotState{}) {
		t.Errorf("born: %+v, %v, %v", s, born, err)
	}
	first := slotSample(1)
	for n := 0; n < slotSize; n += 1 + n/400*30 {
		torn := slices.Clone(slotBirth)
		copy(torn[first.offset():], first.encode()[:n])
		if s, born, err := slotNewest(torn); err != nil || !born || s != (slotState{}) && s != first {
			t.Fatalf("its first slot torn after %d bytes: %+v, %v, %v", n, s, born, err)
		}
	}
}

func TestSidecarDamagedInBothSlotsIsAnError(t *testing.T) {
	image := slotImageOf(slotSample(5), slotSample(6))
	for name, spoil := range map[string]func([]byte){
		"a bit in each":   func(b []byte) { b[40] ^= 1; b[slotSize+40] ^= 1 },
		"zeros":           func(b []byte) { clear(b) },
		"padding in each": func(b []byte) { b[slotSize-1] = 'x'; b[2*slotSize-1] = 'x' },
		"slots exchanged": func(b []byte) {
			copy(b, slotImageOf())
			copy(b, slotSample(5).encode())
			copy(b[slotSize:], slotSample(6).encode())
		},
		"other text": func(b []byte) { copy(b, "42\n"); copy(b[slotSize:], "43\n") },
		"blank":      func(b []byte) { clear(b[:2*slotSize]) },
		"one blank, one torn": func(b []byte) {
			clear(b[:slotSize])
			b[slotSize+100]++
		},
	} {
		spoilt := slices.Clone(image)
		spoil(spoilt)
		if s, _, err := slotNewest(spoilt); err == nil {
			t.Errorf("%s: reads as %+v", name, s)
		}
	}
}

// TestSidecarWithAnImpossibleMarkIsAnError: even if its checksum is right.
func TestSidecarWithAnImpossibleMarkIsAnError(t *testing.T) {
	for name, plant := range map[string]func(*fence.Mark){
		"no key":                 func(m *fence.Mark) { m.Key = "a//b" },
		"above the highest":      func(m *fence.Mark) { m.Token = fence.MaxToken + 1 },
		"a grant of other signs": func(m *fence.Mark) { m.Grant = "nobody's" },
	} {
		planted := slotSample(6)
		plant(&planted.mark)
		if s, _, err := slotNewest(slotImageOf(slotSample(5), planted)); err == nil {
			t.Errorf("%s: reads as %+v", name, s)
		}
	}
}

// TestThePastedRepairOfASidecarRunsNothingElse: a neighbour has chosen the name
// of the file.
func TestThePastedRepairOfASidecarRunsNothingElse(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		e := &SidecarError{Path: `/srv/it's $(touch ran).fence`, Reason: "it is damaged", Foreign: foreign}
		want := `rm '/srv/it'\''s $(touch ran).fence' && croft guard raise '/srv/it'\''s $(touch ran)'`
		if !strings.HasSuffix(e.Error(), want) {
			t.Errorf("%v; want it to end with %s", e, want)
		}
	}
}

func TestSidecarOfANewerFormatIsNotRead(t *testing.T) {
	newer := slotSample(6)
	body := bytes.TrimRight(newer.encode(), "\x00")
	body = bytes.Replace(body[:bytes.LastIndex(body, []byte("\nsum "))+1], []byte(slotTitle+"1\n"), []byte(slotTitle+"2\n"), 1)
	slot := make([]byte, slotSize)
	copy(slot, append(body, slotSum(body)...))
	image := slotImageOf(slotSample(5))
	copy(image, slot)
	if s, _, err := slotNewest(image); !errors.Is(err, errSlotFormat) {
		t.Errorf("%+v, %v; want it to say that a newer version is needed", s, err)
	}
}

// TestTheProcessInsideIsNamedWhateverItsHostIsCalled: a machine may have no
// name, or one with spaces.
func TestTheProcessInsideIsNamedWhateverItsHostIsCalled(t *testing.T) {
	nameless := []string{hostName("", nil), hostName("", errors.New("no name"))}
	for _, host := range append(nameless, "box", "ann's laptop", "on call since noon", "%d") {
		line := make([]byte, slotNameSize)
		copy(line, fmt.Sprintf(slotSomebody, 7, host, slotTime(time.Now())))
		if pid, at := slotWho(line); pid != 7 || at != host || host == "" {
			t.Errorf("the line of %q names process %d on %q", host, pid, at)
		}
	}
	for _, line := range []string{slotNobody, "", "inside is process 7 on box", "inside is process x on box since noon"} {
		if pid, at := slotWho([]byte(line)); pid != 0 || at != "" {
			t.Errorf("%q names process %d on %q, want nobody", line, pid, at)
		}
	}
}

// FuzzSidecar looks for content that reads as a mark but is not in the form
// that encode writes.
func FuzzSidecar(f *testing.F) {
	f.Add(slotImageOf(slotSample(1), slotSample(2)))
	f.Add(slotImageOf(slotSample(3)))
	f.Add(slotBirth)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, image []byte) {
		s, born, err := slotNewest(image)
		if err != nil || !born || s.generation == 0 {
			return
		}
		if !bytes.Equal(image[s.offset():s.offset()+slotSize], s.encode()) {
			t.Errorf("read %+v from a slot that does not hold it", s)
		}
	})
}

func slotSum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sum " + hex.EncodeToString(sum[:]) + "\n"
}
