package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// sample is build information as a binary could have it.
func sample() *debug.BuildInfo {
	const sum = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	return &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.org/small", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/Upper/Case", Version: "v2.0.0+incompatible", Sum: sum},
			{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{
				Path: "example.org/fork", Version: "v1.0.1", Sum: sum,
			}},
		},
		Settings: []debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}},
	}
}

func TestSBOMDescribesModules(t *testing.T) {
	bill, err := list(sample(), "v1.2.3", "00")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]component{}
	for _, c := range bill.Components {
		byName[c.Name] = c
	}
	if _, ok := byName["example.org/old"]; ok || len(byName) != 3 {
		t.Errorf("lists %v: want the replacement and not the original", byName)
	}
	upper := byName["github.com/Upper/Case"]
	if upper.PURL != "pkg:golang/github.com/upper/case@v2.0.0%2Bincompatible" {
		t.Errorf("package URL %s", upper.PURL)
	}
	// The sample's hash is the SHA-256 of nothing.
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; upper.Hashes[0].Content != want {
		t.Errorf("hash %s, want %s", upper.Hashes[0].Content, want)
	}
	if byName["std"].Version != "1.26.8" {
		t.Errorf("standard library %+v", byName["std"])
	}
}

func TestSBOMRefusesAModuleWithoutAHash(t *testing.T) {
	info := sample()
	info.Deps[0].Sum = ""
	if _, err := list(info, "v1.2.3", "00"); err == nil || !strings.Contains(err.Error(), "github.com/Upper/Case") {
		t.Errorf("%v: want an error that names the module", err)
	}
}

func TestSBOMIsTheSameEachTime(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first, err := readSBOM(self, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	// A copy elsewhere, with another time, is the same binary.
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, string(read(t, self)))
	if err := os.Chtimes(other, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	second, err := readSBOM(other, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("one binary, two SBOMs:\n%s\n%s", first, second)
	}
}

func TestArchivesDependOnContentAlone(t *testing.T) {
	for _, ending := range []string{".tar.gz", ".zip"} {
		var made []string
		for n := range 2 {
			dir := t.TempDir()
			file := filepath.Join(dir, "content")
			write(t, file, "the same")
			if err := os.Chmod(file, []os.FileMode{0o600, 0o755}[n]); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, time.Now(), time.Now().Add(-time.Duration(n)*time.Hour)); err != nil {
				t.Fatal(err)
			}
			archive := filepath.Join(dir, "a"+ending)
			if err := writeArchive(archive, "a", undated, []entry{{"content", file, 0o644}}); err != nil {
				t.Fatal(err)
			}
			made = append(made, archive)
		}
		if !sameBytes(t, made[0], made[1]) {
			t.Errorf("%s: the same content gave different archives", ending)
		}
		if got := unpack(t, made[0]); got["a/content"] != "the same" {
			t.Errorf("%s: holds %q", ending, got)
		}
	}
}

func TestSumsAreThoseOfTheFiles(t *testing.T) {
	out := t.TempDir()
	write(t, filepath.Join(out, "b"), "")
	write(t, filepath.Join(out, "a"), "abc")
	if err := writeSums(out, []string{"b", "a"}); err != nil {
		t.Fatal(err)
	}
	want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n" +
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
	if got := string(read(t, filepath.Join(out, sumsFile))); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestOldFilesGoAndOthersStay(t *testing.T) {
	out := t.TempDir()
	for _, name := range []string{"croft_v1.0.0_linux_amd64.tar.gz", "croft-slim_v1_x", formulaFile, sumsFile, "notes.txt"} {
		write(t, filepath.Join(out, name), "old")
	}
	if err := tidy(out); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(out)
	if err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("left %v, %v; want only notes.txt", left, err)
	}
}

func TestVersionsThatAreNoneAreRefused(t *testing.T) {
	for _, version := range []string{"v1.2.3", "v0.1.0-rc.1"} {
		if !versions.MatchString(version) {
			t.Errorf("%q was refused", version)
		}
	}
	for _, version := range []string{"1.2.3", "v1", "v1.2.3 -X main.x=y", "v1.2.3/../x", "$(id)", "v1.2.3\n"} {
		if versions.MatchString(version) {
			t.Errorf("%q was accepted", version)
		}
	}
}
