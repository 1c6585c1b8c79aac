package etcd

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are processors. Most of them
// wait for time to pass, or for a leader.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}
