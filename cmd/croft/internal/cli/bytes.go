package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes is a flag with a number of bytes.
type Bytes int64

// Set reads the flag.
func (b *Bytes) Set(text string) error {
	number, unit := text, int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, found := strings.CutSuffix(text, suffix); found {
			number, unit = n, size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<40/unit {
		return fmt.Errorf("not a number of bytes; write it as in 65536, 512KiB or 64MiB, at most 1024GiB")
	}
	*b = Bytes(n * unit)
	return nil
}

// String writes the number as it can be read again.
func (b *Bytes) String() string {
	for _, u := range []struct {
		size   Bytes
		suffix string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if *b >= u.size && *b%u.size == 0 {
			return strconv.FormatInt(int64(*b/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the flag's value in help texts.
func (b *Bytes) Type() string { return "bytes" }
