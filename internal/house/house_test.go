package house

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTheRepositoryKeepsItsLaws applies every law to this repository.
func TestTheRepositoryKeepsItsLaws(t *testing.T) {
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	here, err := readTree(top)
	if err != nil {
		t.Fatal(err)
	}
	if here.at("internal/house") == nil {
		t.Fatalf("read %s and did not find this package in it: the laws would be tried on nothing", top)
	}
	for name, law := range goLaws {
		t.Run(name, func(t *testing.T) { report(t, law(here)) })
	}
	t.Run("the README keeps its promises", func(t *testing.T) {
		found, err := brokenPromises(top)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
	t.Run("others' code comes in under a fixed name", func(t *testing.T) {
		found, err := looseSupply(top)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
	for name, law := range map[string]func(string) ([]string, error){
		"lines fit the page":                    wideLines,
		"all parts of others are listed":        unlistedSupply,
		"exported documentation names an actor": exportedRiddles,
		"a name has one meaning":                retiredNames,
	} {
		t.Run(name, func(t *testing.T) {
			found, err := law(top)
			if err != nil {
				t.Fatal(err)
			}
			report(t, found)
		})
	}
	t.Run("no file names a folder of one machine", func(t *testing.T) {
		files, err := tracked(top)
		if err != nil {
			t.Fatal(err)
		}
		home, err := os.UserHomeDir()
		if err != nil {
			home = "" // not a user's home: look only for the path of the checkout
		}
		found, err := privatePaths(top, home, files)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
}

// goLaws are the laws that need only the Go files of a tree.
var goLaws = map[string]func(*tree) []string{
	"imports follow the plan":           brokenPlan,
	"every package says what it is for": missingComments,
	"goroutines have a state model":     missingStates,
	"no file has become two":            longFiles,
	"names say what is inside":          emptyNames,
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}
