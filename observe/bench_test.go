package observe

import (
	"testing"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
)

// BenchmarkObserved measures an acquire and a release, without an observer and
// with metrics.
func BenchmarkObserved(b *testing.B) {
	for name, observe := range map[string]func(croft.Event){"off": nil, "on": New(nil).Observe} {
		b.Run(name, func(b *testing.B) {
			c := croft.New(mem.New(nil), &croft.Options{Observe: observe})
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				l, err := c.Acquire(b.Context(), "bench/one", nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
