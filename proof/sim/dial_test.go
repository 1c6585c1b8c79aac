package sim

import (
	"testing"
	"time"
)

// at and when must agree at any rate. The dial's time must never go back unless
// somebody sets it back.
func TestTheTwoViewsOfADialAgree(t *testing.T) {
	for _, ppm := range []int64{0, 50_000, -50_000, 1, -999_999} {
		d := dial{since: 3 * time.Second, shows: int64(time.Hour), ppm: ppm}
		last := d.at(3 * time.Second)
		for i := range int64(2000) {
			at := 3*time.Second + time.Duration(i*i*7919)
			if now := d.at(at); now < last {
				t.Fatalf("at %s, fast by %d ppm, it goes back by %d", at, ppm, last-now)
			} else {
				last = now
			}
			if ppm == -999_999 {
				continue
			}
			want := int64(time.Hour) + i*i*7919
			if when := d.when(want); d.at(when) < want || when > d.since && d.at(when-2) >= want {
				t.Fatalf("fast by %d ppm it shows %d at %s, not %d for the first time", ppm, d.at(when), when, want)
			}
		}
	}
	d := dial{ppm: stopped}
	if d.at(time.Hour) != 0 || d.when(1) != far {
		t.Error("a clock that stands still goes on")
	}
	d.pace(time.Hour, 0)
	d.step(time.Hour, -time.Minute)
	if got := d.at(2 * time.Hour); got != int64(time.Hour-time.Minute) {
		t.Errorf("after an hour at a stand, a step back and an hour: %s", time.Duration(got))
	}
}
