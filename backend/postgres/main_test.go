package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestMain gives the examples a database. They find it in the environment, as a
// user's program does.
func TestMain(m *testing.M) {
	flag.Parse()
	if url := exampleDatabase(); url != "" {
		_ = os.Setenv("DATABASE_URL", url)
	} else {
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}

// exampleDatabase returns a fresh database. It returns "" where no server can
// run: then every test says so.
func exampleDatabase() (url string) {
	if testing.Short() {
		return ""
	}
	defer func() {
		if r := recover(); r != nil {
			if _, gone := r.(noDatabase); !gone {
				panic(r)
			}
		}
	}()
	outside := beforeTests{}
	return testenv.Postgres(outside).Database(outside)
}

// beforeTests stands in for a test before the first one runs.
type beforeTests struct{ testing.TB }

type noDatabase struct{}

func (beforeTests) Helper()                  {}
func (beforeTests) Context() context.Context { return context.Background() }
func (beforeTests) Skipf(string, ...any)     { panic(noDatabase{}) }
func (beforeTests) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	panic(noDatabase{})
}
