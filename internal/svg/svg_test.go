package svg_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/svg"
)

// wellFormed fails the test if a picture is not XML. It returns its elements.
func wellFormed(t *testing.T, picture []byte) []xml.StartElement {
	t.Helper()
	var all []xml.StartElement
	in := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		if element, ok := token.(xml.StartElement); ok {
			all = append(all, element.Copy())
		}
	}
}

func TestTextOfOthersStaysText(t *testing.T) {
	for _, text := range []string{
		`</text><script>alert(1)</script>`, `"><image href="http://example.org/x"/>`, "a\x00b\x1b[31mc", "\u202egnp.exe",
		"\xff\xfe", "]]>", "&amp;", "a\nb",
	} {
		p := svg.New(text, text)
		p.Text(svg.Plain, svg.Body, 0, 0, text)
		p.Bold(svg.Plain, svg.Body, 0, 0, text)
		picture := p.Bytes(100)
		for _, element := range wellFormed(t, picture) {
			switch element.Name.Local {
			case "svg", "title", "desc", "style", "rect", "text":
			default:
				t.Errorf("%q became an element %s", text, element.Name.Local)
			}
		}
		if strings.ContainsAny(string(picture), "\u202e\x00\x1b") {
			t.Errorf("%q: characters that cannot be seen are in\n%s", text, picture)
		}
	}
}

func TestAPictureNeedsNothingElseAndIsForLightAndDark(t *testing.T) {
	p := svg.New("a title", "a description")
	p.Hatched(svg.One, 1, 2, 30, 40)
	p.Frame(svg.Two, 1, 2, 30, 40, "3 3")
	p.Cross(svg.Alarm, 5, 5, 5)
	p.Dot(svg.Faint, 5, 5, 5)
	picture := string(p.Bytes(100))
	for _, element := range wellFormed(t, []byte(picture)) {
		for _, a := range element.Attr {
			if a.Name.Local == "href" || strings.Contains(a.Value, "http") && a.Name.Local != "xmlns" {
				t.Errorf("%s has a link: %s", element.Name.Local, a.Value)
			}
		}
	}
	for _, want := range []string{
		"<title id=\"title\">a title</title>", "<desc id=\"desc\">a description</desc>", `role="img"`,
		"@media (prefers-color-scheme:dark)", `viewBox="0 0 480 100"`, `fill="url(#hatch-one)"`, `id="hatch-one"`,
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture lacks %s:\n%s", want, picture)
		}
	}
	if strings.Contains(picture, "@import") || strings.Contains(picture, "@font-face") {
		t.Errorf("the style is not self-contained:\n%s", picture)
	}
}

func TestTextFitsItsRoom(t *testing.T) {
	for _, text := range []string{"", "short", "a longer text of several words", strings.Repeat("W", 500), "界界界界界界界界界界界界"} {
		for _, room := range []float64{50, 100, 400} {
			if got := svg.Clip(text, svg.Body, room); svg.Measure(got, svg.Body) > room {
				t.Errorf("%q needs more than %g", got, room)
			}
			lines := svg.Wrap(text, svg.Body, room)
			for _, line := range lines {
				if svg.Measure(line, svg.Body) > room {
					t.Errorf("the line %q needs more than %g", line, room)
				}
			}
			if words := strings.Join(lines, " "); len(text) < 100 && room == 400 && words != text {
				t.Errorf("%q became %q", text, words)
			}
		}
	}
}
