package cli

import "testing"

func TestTheDistanceOfTwoWords(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"reports/daily", "reports/daily", 0},
		{"repots/daily", "reports/daily", 1},
		{"reprots/daily", "reports/daily", 1},
		{"reports/dayly", "reports/daily", 1},
		{"orders/1", "orders/42", 2},
		{"abcd", "dcba", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
