package gcs

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at a time than there are processors: most of them wait for a second to pass on the server's clock.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "24")
	os.Exit(m.Run())
}
