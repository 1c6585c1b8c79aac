package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// checkVersion runs croft --version, and compares its output with the origin.
func checkVersion(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	const want = "croft v1.2.3 (commit 0123456789ab, 2026-01-31T08:00:00Z)\n"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("croft --version: %v, said %q, want %q", err, out, want)
	}
}

// checkPackages makes the packages of a binary, unpacks the .deb into a folder,
// and runs the croft there.
func checkPackages(t *testing.T, r releaser, binary string) {
	if runtime.GOOS != "linux" {
		t.Skip("packages are for Linux")
	}
	r.nfpm = testenv.Built(t, "nfpm", ".")
	// A small file in place of the binary shows as much, and is compressed at
	// once.
	again, small := r, filepath.Join(r.top, "LICENSE")
	again.out = t.TempDir()
	files, err := r.packages(t.Context(), host, small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.packages(t.Context(), host, small); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !sameBytes(t, filepath.Join(r.out, name), filepath.Join(again.out, name)) {
			t.Errorf("two runs made different files %s", name)
		}
	}

	dpkg, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("NOT CHECKED: dpkg-deb is not here, so the package is not installed")
	}
	deb, err := r.packageOf(t.Context(), "deb", host, binary)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), dpkg, "-x", filepath.Join(r.out, deb), root).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	checkVersion(t, exec.CommandContext(t.Context(), filepath.Join(root, "usr", "bin", "croft"), "--version"))
	for name, mode := range map[string]os.FileMode{
		"bin/croft":                                  0o755,
		"lib/systemd/system/croft-run@.timer":        0o644,
		"share/bash-completion/completions/croft":    0o644,
		"share/zsh/vendor-completions/_croft":        0o644,
		"share/fish/vendor_completions.d/croft.fish": 0o644,
		"share/man/man1/croft-run.1.gz":              0o644,
		"share/doc/croft/copyright":                  0o644,
		"share/doc/croft/docs/guide.md":              0o644,
	} {
		info, err := os.Stat(filepath.Join(root, "usr", name))
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode() != mode || !info.ModTime().Equal(tagged.date) || info.Size() == 0 {
			t.Errorf("%s has mode %v, time %v and %d bytes", name, info.Mode(), info.ModTime(), info.Size())
		}
	}
	unit := read(t, filepath.Join(root, "usr", "lib", "systemd", "system", "croft-run@.service"))
	if !bytes.Contains(unit, []byte("ExecStart=/usr/bin/croft run ")) {
		t.Errorf("the unit starts another croft:\n%s", unit)
	}
	out, err := exec.CommandContext(t.Context(), dpkg, "-f", filepath.Join(r.out, deb), "Version", "Architecture").Output()
	if err != nil || string(out) != "Version: 1.2.3\nArchitecture: "+host.arch+"\n" {
		t.Errorf("dpkg-deb says %q (%v)", out, err)
	}
}

// copied finds the archive that the Dockerfile copies. prepared finds the
// commands that make the folder of the image from it.
var (
	copied   = regexp.MustCompile(`(?m)^COPY dist/(\S+) /unpacked/release\.tar\.gz\nWORKDIR /unpacked/image\n`)
	prepared = regexp.MustCompile(`(?m)^RUN ((?:.*\\\n)*.*)$`)
)

// checkImage makes the folder of the image as the Dockerfile does, and runs
// croft with that folder as its root and the user of the image. A croft that
// needs a C library, a shell or any other file fails there.
func checkImage(t *testing.T, r releaser, binary string) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	dockerfile := read(t, filepath.Join(r.top, "Dockerfile"))
	files, err := r.pack(whole, host, binary)
	if err != nil {
		t.Fatal(err)
	}
	from, run := copied.FindSubmatch(dockerfile), prepared.FindSubmatch(dockerfile)
	if from == nil || run == nil {
		t.Fatalf("the Dockerfile does not copy and unpack an archive:\n%s", dockerfile)
	}
	archive := strings.NewReplacer("${VERSION}", "v1.2.3", "${TARGETARCH}", host.arch).Replace(string(from[1]))
	if !slices.Contains(files, archive) {
		t.Fatalf("the Dockerfile copies %s, and a release has %q", archive, files)
	}
	for _, want := range []string{
		"\nFROM scratch\n", "\nUSER 65532:65532\n", "\nENV CROFT_STORE=/var/lib/croft\n",
		"\nVOLUME /var/lib/croft\n", "\nENTRYPOINT [\"/usr/bin/croft\"]\n",
	} {
		if !bytes.Contains(dockerfile, []byte(want)) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}

	testenv.NeedRoot(t)
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil {
		testenv.Missing(t, "%v: install the package ca-certificates", err)
	}
	work := t.TempDir()
	image := filepath.Join(work, "image")
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(r.out, archive), filepath.Join(work, "release.tar.gz")); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-c", string(run[1]))
	sh.Dir = image
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("the commands of the Dockerfile: %v\n%s", err, out)
	}
	checkVersion(t, inImage(t, image, "--version"))
	if out, err := inImage(t, image, "doctor").CombinedOutput(); err != nil {
		t.Errorf("croft doctor: %v\n%s", err, out)
	}
}
