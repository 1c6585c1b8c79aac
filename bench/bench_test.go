package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// The benchmarks are code that people trust: they must at least run to their end. Times are not looked at.
func TestEveryWorkloadRuns(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, dir: t.TempDir(), rounds: 1, leases: 100}
	pick := "dir|combine|run"
	if err := b.all(pick); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"croft: acquire + release", "64 goroutines", "overhead of run"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing about %q in:\n%s", want, &out)
		}
	}
}

func TestMedianIsTheMiddle(t *testing.T) {
	if m := median([]time.Duration{3, 1, 2}); m != 2 {
		t.Errorf("median of 3, 1, 2 is %d", m)
	}
}
