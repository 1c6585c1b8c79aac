package main

import (
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// binaries holds the croft binaries that the tests make for themselves.
var binaries string

// withBinaries runs the tests with a folder for binaries.
type withBinaries struct{ *testing.M }

func (m withBinaries) Run() int {
	dir, err := os.MkdirTemp("", "croft-binaries")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binaries = dir
	return m.M.Run()
}

// plainCroft is a folder with a croft that is built without the race detector.
// The scripts start croft well over a thousand times, and most of the time
// that took was the race detector's start. The folder is empty if this binary
// has no race detector itself. Without a Go toolchain this binary serves: it
// is slower, and as good.
var plainCroft = sync.OnceValue(func() string {
	if !raceBuilt() {
		return ""
	}
	name := "croft"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if err := testenv.BuildPlain(filepath.Join(binaries, name)); err != nil {
		log.Printf("the scripts run a croft with the race detector, which takes longer: %v", err)
		return ""
	}
	return binaries
})

// raceBuilt reports whether this binary is built with the race detector.
func raceBuilt() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
