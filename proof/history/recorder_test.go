package history

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The operations that the process had begun are known. An incomplete line is
// ignored until it is complete.
func TestTheHistoryOfAKilledProcessIsRead(t *testing.T) {
	folder := t.TempDir()
	rec, err := NewRecorder(folder, "c1")
	if err != nil {
		t.Fatal(err)
	}
	first := rec.Begin(Call{Kind: Read, Key: "k"})
	rec.Begin(Call{Kind: Write, Key: "k", Update: "c1.1"})
	rec.End(first, Result{Outcome: OK, Update: "c0.9"})
	if _, err := rec.file.WriteString(`{"id":3,"at":12,"ca`); err != nil {
		t.Fatal(err)
	}
	r := NewReader(folder)
	ops, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(ops) != 2 || ops[0].Result.Update != "c0.9" || ops[0].End < ops[0].Begin || ops[1].End != Never || !ops[1].Open() {
		t.Fatalf("read %v", ops)
	}
	// The line is finished after all, and the operation ends.
	if _, err := rec.file.WriteString("ll\":{\"kind\":\"read\"}}\n"); err != nil {
		t.Fatal(err)
	}
	rec.End(2, Result{Outcome: OK})
	if ops, err = r.Read(); err != nil || len(ops) != 3 || ops[2].Open() && ops[1].Open() {
		t.Fatalf("read on: %v, %v", ops, err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRecorder(folder, "c1"); err == nil {
		t.Error("two processes may have one name")
	}
}

// A batch that hangs outlives its client, and may end after the history.
func TestACallThatEndsAfterTheHistoryStaysOpen(t *testing.T) {
	folder := t.TempDir()
	rec, err := NewRecorder(folder, "c1")
	if err != nil {
		t.Fatal(err)
	}
	id := rec.Begin(Call{Kind: Read, Key: "k"})
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	rec.End(id, Result{Outcome: OK})
	if ops, err := NewReader(folder).Read(); err != nil || len(ops) != 1 || !ops[0].Open() {
		t.Errorf("read %v, %v", ops, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a call began unnoticed after the history had ended")
		}
	}()
	rec.Begin(Call{Kind: Read, Key: "k"})
}

// A guess would blame the wrong process or none.
func TestADamagedHistoryIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":                 "hello\n",
		"an end without a begin":  `{"id":1,"at":5,"result":{"outcome":"ok"}}` + "\n",
		"a beginning that is two": strings.Repeat(`{"id":1,"at":5,"call":{"kind":"read"}}`+"\n", 2),
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "p.jsonl"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if ops, err := Load(folder); err == nil {
				t.Errorf("read %v", ops)
			}
		})
	}
}

// The page must not load anything from elsewhere.
func TestATimelineShowsWhatBrokeALaw(t *testing.T) {
	s := twoOwners().writes("a", "1", 1050, 1060, 100, 2, "a.2</script>", "a.1", OK).reads("judge", 1100, "a.2</script>").
		add("run", 1000, 1040, Call{Kind: Fault, Victim: "a", Note: "stop 1.1 TTL"}, Result{Outcome: OK})
	for i := range s.ops { // milliseconds, for the eye
		s.ops[i].Begin, s.ops[i].End = s.ops[i].Begin*1e6, s.ops[i].End*1e6
	}
	found := Check(s.ops, Scope{})
	var page bytes.Buffer
	if err := Timeline(&page, "two owners & one resource", s.ops, found); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{string(Kept), string(Order), "stop 1.1 TTL", "two owners &amp; one resource"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, foreign := range []string{"src=", "href=", "http://", "https://", "a.2</script>"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page has %q in it", foreign)
		}
	}
	if path := os.Getenv("CROFT_TIMELINE"); path != "" { // to look at it in a browser
		if err := os.WriteFile(path, page.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
}
