package patch

import (
	"strings"
	"testing"
)

// A text that is missing, that occurs twice, or that stays as it is makes no
// variant.
func TestAPatchMustFitOnce(t *testing.T) {
	for _, p := range []Patch{
		{"proof/patch/patch.go", "this text is nowhere in" + " that file", ""},
		{"proof/patch/patch.go", "func ", ""},
		{"proof/patch/patch.go", "type Patch struct", "type Patch struct"},
		{"proof/patch/none.go", "a", "b"},
	} {
		if err := p.Check(t.Context()); err == nil {
			t.Errorf("%+v fits", p)
		}
	}
	if err := (Patch{"proof/patch/patch.go", "type Patch struct", "type Patch  struct"}).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// The test must fail because of the change, and for no other reason.
func TestATestIsRunOnTheChangedCode(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a package four times")
	}
	const test = "internal/renewal.TestALeaseIsRenewedAtAThirdOfItsTTL"
	broken := Patch{"internal/renewal/policy.go", "return p.TTL / 10", "return p.TTL"}
	if fails, err := broken.Fails(t.Context(), t.TempDir(), test); err != nil || !fails {
		t.Errorf("fails: %t, %v", fails, err)
	}
	harmless := Patch{"internal/renewal/policy.go", "return p.TTL / 10", "return p.TTL / (5 + 5)"}
	if fails, err := harmless.Fails(t.Context(), t.TempDir(), test); err != nil || fails {
		t.Errorf("fails: %t, %v", fails, err)
	}
	invalid := Patch{"internal/renewal/policy.go", "return p.TTL / 10", "return nothing"}
	if _, err := invalid.Fails(t.Context(), t.TempDir(), test); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("code that does not compile: %v", err)
	}
	if _, err := harmless.Fails(t.Context(), t.TempDir(), "internal/renewal.TestThatIsNotThere"); err == nil {
		t.Error("a test that is not there passes")
	}
}
