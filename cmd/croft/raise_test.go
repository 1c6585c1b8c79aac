package main

import (
	"strings"
	"testing"
)

// TestPasswordsOfAllowedPlacesAreNotPrinted: this holds for messages of any
// origin.
func TestPasswordsOfAllowedPlacesAreNotPrinted(t *testing.T) {
	t.Setenv(envRaise, "/srv/out redis://ops:hunter22@cache:6379/0")
	if said := (&app{}).redact("the server does not like hunter22"); strings.Contains(said, "hunter22") {
		t.Errorf("it says %q", said)
	}
}
