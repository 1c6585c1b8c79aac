package supervise

import (
	"context"
	"os/exec"
	"testing"
)

// BenchmarkRunTrue shows the cost of supervision over a bare exec: compare the
// two.
func BenchmarkRunTrue(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("supervised", func(b *testing.B) {
		ctx := context.Background()
		for b.Loop() {
			c, err := Start(ctx, []string{"/bin/true"}, nil)
			if err != nil {
				b.Fatal(err)
			}
			if status, err := c.Wait(); err != nil || status.Code != 0 {
				b.Fatal(status, err)
			}
			if err := c.Kill(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}
