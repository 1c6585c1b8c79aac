package excerpt_test

import (
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/excerpt"
)

func TestTextsAreCutAndCleaned(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 4, ""},
		{"abcd", 4, "abcd"},
		{"abcde", 4, "abcd"},
		{"abc€", 4, "abc"},
		{"abc€", 6, "abc€"},
		{"a\x00b\xff\xfec", 9, "a?b?c"},
		{strings.Repeat("€", 9), 1, ""},
	} {
		if got := excerpt.Of(c.text, c.most); got != c.want {
			t.Errorf("Of(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
