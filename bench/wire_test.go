package main

import "testing"

// The counts must not depend on how the bytes are cut into writes.
func TestCommandsAreCountedHoweverTheyAreCut(t *testing.T) {
	redis := "*2\r\n$3\r\nGET\r\n$5\r\n*1\r\n$\r\n*1\r\n$4\r\nPING\r\n"
	pg := "\x00\x00\x00\x08\x00\x03\x00\x00" + "P\x00\x00\x00\x06EQ" + "E\x00\x00\x00\x05E" + "S\x00\x00\x00\x04" + "Q\x00\x00\x00\x06Q\x00"
	for size := 1; size <= len(redis); size++ {
		if n := feed(redis, size, (&resp{}).feed); n != 2 {
			t.Errorf("Redis, in pieces of %d: %d commands, not 2", size, n)
		}
		if n := feed(pg, size, (&pgMessages{}).feed); n != 2 {
			t.Errorf("PostgreSQL, in pieces of %d: %d commands, not 2", size, n)
		}
	}
}

func feed(text string, size int, counts func([]byte) int64) (sum int64) {
	for b := []byte(text); len(b) > 0; {
		n := min(size, len(b))
		sum += counts(b[:n])
		b = b[n:]
	}
	return sum
}
