package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestPasswordsOfAllowedPlacesAreNotPrinted: this holds for messages of any
// origin.
func TestPasswordsOfAllowedPlacesAreNotPrinted(t *testing.T) {
	t.Setenv(EnvRaise, "/srv/out redis://ops:hunter22@cache:6379/0")
	if said := (&App{}).Redact("the server does not like hunter22"); strings.Contains(said, "hunter22") {
		t.Errorf("it says %q", said)
	}
}

func TestNoMessageGivesAPasswordOrSecretAway(t *testing.T) {
	t.Setenv(EnvStore, "redis://ada:hunter22@db/0?token=t0ps3cret")
	a := &App{StoreURL: "postgres://bob:s3cr3tpw@db/x"}
	for _, message := range []string{
		"dial redis://ada:hunter22@db/0?token=t0ps3cret: refused",
		`store "postgres://bob:s3cr3tpw@db/x": password s3cr3tpw was wrong, hunter22 too`,
		"lease croft-lease1:17:00112233445566778899aabbccddeeff:1m0s:k is odd",
		"target s3://id:deadbeef@bucket/x is not there",
	} {
		got := a.Redact(message)
		for _, secret := range []string{"hunter22", "t0ps3cret", "s3cr3tpw", "00112233", "deadbeef"} {
			if strings.Contains(got, secret) {
				t.Errorf("%q became %q", message, got)
			}
		}
	}
}

// TestTriesOfAClientLibraryStandOnOneLine: they come on lines of their own, and
// no tab is shown as \t.
func TestTriesOfAClientLibraryStandOnOneLine(t *testing.T) {
	said := (&App{}).Redact("failed to connect to `user=u`:\n\t127.0.0.1:1: refused\n\t[::1]:1: refused")
	want := "failed to connect to `user=u`: 127.0.0.1:1: refused [::1]:1: refused"
	if said != want || Line(said) != want || Lines(said) != want {
		t.Errorf("it says %q", said)
	}
	said = (&App{}).Redact("failed to connect to `user=u`:\n\t127.0.0.1:1: refused\n\t127.0.0.1:1: refused; is it up?")
	if want := "failed to connect to `user=u`: 127.0.0.1:1: refused; is it up?"; said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
	said = (&App{}).Redact("failed to connect to `user=u`:\n\thostname resolving error: lookup db: no such host\n\tlookup db: no such host; is it up?")
	if want := "failed to connect to `user=u`: lookup db: no such host; is it up?"; said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
}

// TestNoMessageSpeaksOfContexts: only Go programmers know them.
func TestNoMessageSpeaksOfContexts(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, context.Canceled} {
		if said := (&App{}).Redact(fmt.Sprintf("outcome unknown: %v", err)); strings.Contains(said, "context") {
			t.Errorf("it says %q", said)
		}
	}
}
