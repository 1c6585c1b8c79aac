package cli

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

func TestWordsThatCouldFoolAReaderAreQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"reports/daily":    "reports/daily",
		"größe/日本/ñ":       "größe/日本/ñ",
		"":                 "-",
		"-":                `"-"`,
		"two words":        `"two words"`,
		`a"b`:              `"a\"b"`,
		"red\x1b[31m":      `"red\x1b[31m"`,
		"evil\u202etxt.":   `"evil\u202etxt."`, // reverses the text after it
		"zero\u200bwidth":  `"zero\u200bwidth"`,
		"no-break\u00a0x":  `"no-break\u00a0x"`,
		"bad\xffbyte":      `"bad\xffbyte"`,
		"line\nbreak":      `"line\nbreak"`,
		"c1\u009bcsi":      `"c1\u009bcsi"`,
		"private\ue000use": `"private\ue000use"`,
	} {
		if got := Word(text); got != want {
			t.Errorf("word(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestAPastedCommandRunsNothingElse: a neighbour has chosen the name of a file
// in a command that croft suggests.
func TestAPastedCommandRunsNothingElse(t *testing.T) {
	for text, want := range map[string]string{
		"/srv/croft.toml":  "/srv/croft.toml",
		"":                 "''",
		"-rf":              "'-rf'",
		"two words":        "'two words'",
		"$(touch ran)":     "'$(touch ran)'",
		"`touch ran`; ~ *": "'`touch ran`; ~ *'",
		"it's":             `'it'\''s'`,
		"red\x1b[31m$(x)":  `'"red\x1b[31m$(x)"'`,
	} {
		if got := Pasted(text); got != want {
			t.Errorf("pasted(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestNothingShownMovesTheCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		for _, shown := range []string{Word(text), Line(text), strings.ReplaceAll(Lines(text), "\n", "")} {
			for _, r := range shown {
				if !unicode.IsPrint(r) {
					t.Fatalf("%q is shown as %q", text, shown)
				}
			}
		}
	})
}

func TestMessagesKeepTheirLines(t *testing.T) {
	if got, want := Lines("one\n\ttwo \x1b[2J"), "one\n two \\x1b[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCutFitsAndSaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom(nil, unicode.Latin, unicode.Han)).Draw(t, "text")
		columns := rapid.IntRange(1, 40).Draw(t, "columns")
		got := Cut(text, columns)
		if Width(got) > columns {
			t.Fatalf("cut(%q, %d) = %q, %d columns wide", text, columns, got, Width(got))
		}
		if got != text && !strings.HasSuffix(got, "…") {
			t.Fatalf("cut(%q, %d) = %q hides that something is missing", text, columns, got)
		}
	})
}

func TestDurationsReadAsPeopleSayThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                     "0ms",
		412 * time.Millisecond:                "412ms",
		9950 * time.Millisecond:               "9.9s",
		59*time.Second + 900*time.Millisecond: "59s",
		3 * time.Minute:                       "3m",
		3*time.Minute + 20*time.Second:        "3m20s",
		2*time.Hour + 5*time.Minute:           "2h5m",
		50 * time.Hour:                        "2d2h",
		720 * time.Hour:                       "30d",
		-90 * time.Second:                     "-1m30s",
	} {
		if got := Short(d); got != want {
			t.Errorf("short(%v) = %s, want %s", d, got, want)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for t0, want := range map[time.Time]string{{}: "never", now.Add(-time.Minute): "1m ago", now.Add(time.Hour): "in 1h"} {
		if got := Ago(now, t0); got != want {
			t.Errorf("ago(%v) = %s, want %s", t0, got, want)
		}
	}
}

func TestATableIsAlignedWhateverIsInIt(t *testing.T) {
	var out strings.Builder
	tab := &Table{W: &out, Head: []string{"KEY", "STATE", "PROGRESS"}}
	tab.Row(PlainCell("日本"), Cell{"held", Green}, PlainCell(""))
	tab.Row(PlainCell("reports"), Cell{"free", Faint}, PlainCell("step 4"))
	tab.Flush()
	want := "KEY      STATE  PROGRESS\n日本     held\nreports  free   step 4\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
