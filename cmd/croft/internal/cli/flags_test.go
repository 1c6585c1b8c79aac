package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft"
)

func TestDurationsOutOfBoundsAreRefused(t *testing.T) {
	set := func() (*pflag.FlagSet, *time.Duration) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		var ttl, wait, every time.Duration
		TTLFlag(flags, &ttl, time.Minute, "")
		WaitFlag(flags, &wait)
		SpanFlag(flags, &every, "every", "")
		return flags, &wait
	}
	for _, bad := range []string{
		"--ttl=0", "--ttl=0s", "--ttl=-1s", "--ttl=9ms", "--ttl=100000h", "--ttl=5", "--ttl=", "--ttl=forever", "--ttl=d", "--ttl=1d2d", "--ttl=1d-1s", "--ttl=-1d", "--ttl=1h1d", "--ttl=999999d", "--ttl=106751d24h",
		"--wait=-1s", "--wait=soon", "--wait=100000h", "--every=-1s", "--every=100000h", "--every=forever",
	} {
		if flags, _ := set(); flags.Parse([]string{bad}) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	for _, good := range []string{"--ttl=10ms", "--ttl=720h", "--wait=0", "--wait=1h30m", "--wait=forever", "--every=0", "--every=24h"} {
		flags, wait := set()
		if err := flags.Parse([]string{good}); err != nil {
			t.Errorf("%s is refused: %v", good, err)
		}
		if good == "--wait=forever" && *wait != croft.Forever {
			t.Errorf("forever is %s", *wait)
		}
	}
}

func TestDurationsMayHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "30d": 720 * time.Hour, "0d5s": 5 * time.Second, "90s": 90 * time.Second,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
}
