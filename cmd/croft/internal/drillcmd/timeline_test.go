package drillcmd

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/internal/svg"
	"github.com/croft-dev/croft/tenure"
)

// pausedDrill is a recording of the scene pause.
func pausedDrill() *drill.Report {
	at := func(ms int) time.Time { return drillBegan.Add(time.Duration(ms) * time.Millisecond) }
	scene := drill.Scene{
		Name: "pause", Key: "croft-drill/abc/pause",
		Steps: []drill.Step{{Result: drill.OK}, {Result: drill.OK}, {Result: drill.OK}},
		Terms: []drill.Term{
			{
				Owner: "A", Token: 1795024095383407, Cause: tenure.First, Acquired: at(40), Finished: at(2400),
				Ended: tenure.EndExpired, Absent: []drill.Span{{From: at(500), To: at(3500)}},
			},
			{
				Owner: "B", Token: 1795024097394950, Cause: tenure.Expired, Acquired: at(2420), Finished: at(3700),
				Ended: tenure.EndReleased,
			},
		},
	}
	for _, e := range []struct {
		owner string
		kind  drill.EventKind
		ms    int
	}{
		{"A", drill.Wrote, 90},
		{"A", drill.Renewed, 400},
		{"A", drill.Left, 500},
		{"B", drill.Asked, 510},
		{"B", drill.Wrote, 2470},
		{"B", drill.Renewed, 2700},
		{"A", drill.Returned, 3500},
		{"A", drill.Bounced, 3510},
		{"A", drill.Refused, 3520},
		{"A", drill.Refused, 3525},
		{"A", drill.Bounced, 3530},
		{"B", drill.Wrote, 3650},
	} {
		scene.Events = append(scene.Events, drill.Event{Owner: e.owner, Kind: e.kind, At: at(e.ms)})
	}
	return &drill.Report{
		TTL: 2 * time.Second, Guarded: true, Began: drillBegan,
		Scenes: []drill.Scene{{Name: "crash"}, scene},
	}
}

// TestThePictureOfARecordingStaysAsItIs compares with testdata/pause.svg. After
// a change of the drawing, look at the new picture: CROFT_DRAW=1 writes it.
func TestThePictureOfARecordingStaysAsItIs(t *testing.T) {
	path := filepath.Join("testdata", "pause.svg")
	got := pausePicture(pausedDrill())
	if os.Getenv("CROFT_DRAW") != "" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the picture differs from %s; look at it and write it with CROFT_DRAW=1:\n%s", path, got)
	}
	for range 10 {
		if again := pausePicture(pausedDrill()); !bytes.Equal(again, got) {
			t.Fatal("the same recording gives two pictures")
		}
	}
}

// writtenAt is a line of text and its position.
type writtenAt struct {
	text        string
	left, right float64
	base        float64
	size        int
}

// textsOf returns the texts of a picture, which must be well-formed.
func textsOf(t *testing.T, picture []byte) []writtenAt {
	t.Helper()
	var all []writtenAt
	in := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		var w writtenAt
		if err := in.DecodeElement(&w.text, &start); err != nil {
			t.Fatal(err)
		}
		anchor, inCircle := 0.0, false
		for _, a := range start.Attr {
			switch v, _ := strconv.ParseFloat(a.Value, 64); a.Name.Local {
			case "x":
				w.left = v
			case "y":
				w.base = v
			case "font-size":
				w.size = int(v)
			case "class":
				inCircle = a.Value == string(svg.Paper)
			case "text-anchor":
				anchor = map[string]float64{"middle": .5, "end": 1}[a.Value]
			}
		}
		width := svg.Measure(w.text, w.size)
		if inCircle {
			width = 18
		}
		w.left -= anchor * width
		w.right = w.left + width
		all = append(all, w)
	}
}

// checkLegible fails the test if texts overlap or leave the card.
func checkLegible(t *testing.T, picture []byte) {
	t.Helper()
	texts := textsOf(t, picture)
	for i, a := range texts {
		if a.left < 0 || a.right > svg.Width {
			t.Errorf("%q leaves the card: from %g to %g", a.text, a.left, a.right)
		}
		for _, b := range texts[:i] {
			if a.left < b.right && b.left < a.right && math.Abs(a.base-b.base) < float64(min(a.size, b.size)) {
				t.Errorf("%q and %q overlap", a.text, b.text)
			}
		}
	}
}

func TestThePictureTellsEveryTurnOfTheStory(t *testing.T) {
	refused := pausedDrill()
	through := pausedDrill()
	through.Guarded = false
	scene := &through.Scenes[1]
	for i := range scene.Events {
		if scene.Events[i].Kind == drill.Bounced {
			scene.Events[i].Kind = drill.Overwrote
		}
	}
	scene.Steps[2].Result = drill.Corrupted
	unfinished := pausedDrill()
	unfinished.Scenes[1].Terms = unfinished.Scenes[1].Terms[:1]
	unfinished.Scenes[1].Events = unfinished.Scenes[1].Events[:4]
	unfinished.Scenes[1].Steps[1].Result = drill.NotDone
	for name, c := range map[string]struct {
		report *drill.Report
		want   []string
		not    string
	}{
		"refused": {refused, []string{
			"A frozen worker wakes up: its write is refused",
			"by A, token …5383407", "by B, token …7394950",
			"0.00 s", "A gets the lease (token …5383407) and writes",
			"0.46 s", "A freezes in the middle of a write",
			"0.47 s", "B asks for the key, and waits",
			"2.36 s", "A loses the lease (expired)",
			"2.38 s", "B gets the lease (token …7394950) and writes",
			"3.46 s", "A wakes up and finishes its write: refused, like", "3 more requests after it",
			"3.61 s", "B writes and releases the lease",
			"croft drill, leases of 2s: 3 of 3 steps as they should be",
		}, "through"},
		"through": {through, []string{
			"A frozen worker wakes up: its write gets", "by A", "by B",
			"A wakes up and finishes its write: 2 stale", "writes through, 2 requests refused",
			"croft drill --unguarded, leases of 2s: 2 of 3 steps as they should be",
		}, "by B, token"},
		"unfinished": {unfinished, []string{
			"A frozen worker: not all was as it should be", "A freezes in the middle of a write",
			"croft drill, leases of 2s: 2 of 3 steps as they should be",
		}, "wakes up"},
	} {
		t.Run(name, func(t *testing.T) {
			picture := pausePicture(c.report)
			checkLegible(t, picture)
			var texts []string
			for _, w := range textsOf(t, picture) {
				texts = append(texts, w.text)
			}
			after := 0
			for _, want := range c.want {
				i := slices.Index(texts[after:], want)
				if i < 0 {
					t.Fatalf("no %q after the first %d of %q", want, after, texts)
				}
				after += i + 1
			}
			if strings.Contains(strings.Join(texts, "\n"), c.not) {
				t.Errorf("it says %q: %q", c.not, texts)
			}
		})
	}
}

func TestAPictureOfALongDrillStaysSmallAndLegible(t *testing.T) {
	r := pausedDrill()
	scene := &r.Scenes[1]
	r.TTL = 10 * time.Minute
	for i := range 10_000 {
		at := drillBegan.Add(time.Duration(i) * 150 * time.Millisecond)
		owner := fmt.Sprintf("</text><script>%d %s", i, strings.Repeat("WWWW ", 50))
		scene.Terms = append(scene.Terms, drill.Term{Owner: owner, Token: 1 + 2_000_000_000_000_000, Acquired: at, Finished: at})
		for _, kind := range []drill.EventKind{
			drill.Wrote, drill.Renewed, drill.Bounced, drill.Refused, drill.Overwrote, drill.Asked,
		} {
			scene.Events = append(scene.Events, drill.Event{Owner: []string{"A", "B", owner}[i%3], Kind: kind, At: at})
		}
	}
	picture := pausePicture(r)
	checkLegible(t, picture)
	if most := 64 << 10; len(picture) > most {
		t.Errorf("%d bytes, more than %d", len(picture), most)
	}
	if bytes.Contains(picture, []byte("<script>")) {
		t.Error("an owner's name became a script")
	}
}

func TestThePictureIsLegibleForEveryTTL(t *testing.T) {
	for _, longer := range []int{1, 2, 5, 15, 60, 300} {
		r := pausedDrill()
		scene := &r.Scenes[1]
		r.TTL = time.Duration(longer) * 2 * time.Second
		stretch := func(at *time.Time) { *at = drillBegan.Add(time.Duration(longer * int(at.Sub(drillBegan)))) }
		for i := range scene.Terms {
			term := &scene.Terms[i]
			stretch(&term.Acquired)
			stretch(&term.Finished)
			for j := range term.Absent {
				stretch(&term.Absent[j].From)
				stretch(&term.Absent[j].To)
			}
		}
		for i := range scene.Events {
			stretch(&scene.Events[i].At)
		}
		checkLegible(t, pausePicture(r))
	}
}

func TestThereIsNoPictureWithoutOwners(t *testing.T) {
	r := pausedDrill()
	r.Scenes[1].Terms = nil
	if picture := pausePicture(r); picture != nil {
		t.Errorf("there is one:\n%s", picture)
	}
}
