package gcs

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are processors. Most tests
// wait for a second to pass on the server's clock.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "24")
	os.Exit(m.Run())
}
