// Command dist builds the archives of a release. `make dist` runs it:
//
//	go run ./tools/dist -version v1.2.3 -out dist
//
// For every platform it builds croft and writes an archive with the binary,
// the license and the README. Beside each archive it writes an SBOM: the list
// of the Go modules that the binary was linked from. SHA256SUMS holds the
// checksums of all these files.
//
// A version is built from its tag alone: in a clone, the commit that is checked
// out must have the tag, and no file may differ from it.
//
// The same source and the same Go release give the same bytes, on any machine
// and in any folder. Nothing in the output depends on the time, the user or
// the path of the build.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// sumsFile is the name of the file with the checksums.
const sumsFile = "SHA256SUMS"

// development is the version of a build that is no release.
const development = "development"

// platforms are the systems that a release is built for.
var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "arm64"},
	{"darwin", "amd64"},
	{"windows", "amd64"},
}

func main() {
	version := flag.String("version", "", "the version, such as v1.2.3; default: "+development)
	out := flag.String("out", "dist", "the folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, flag.Args(), *version, *out, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, version, out string, said io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	if version == "" {
		version = development
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	const top = "." // make runs this at the top of the repository
	if err := checkSource(ctx, top, version); err != nil {
		return err
	}
	if err := tidy(out); err != nil {
		return err
	}
	var files []string
	for _, p := range platforms {
		made, err := release(ctx, top, p, version, out)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, name := range made {
			fmt.Fprintln(said, filepath.Join(out, name))
		}
		files = append(files, made...)
	}
	fmt.Fprintln(said, filepath.Join(out, sumsFile))
	return writeSums(out, files)
}

// versions are semantic versions as Go tags them.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// checkVersion refuses a version that cannot be the tag of a release. The
// version becomes part of file names and of the linker's arguments.
func checkVersion(version string) error {
	if version != development && !versions.MatchString(version) {
		return fmt.Errorf("%q is not a version; give one such as v1.2.3, or none", version)
	}
	return nil
}

// tidy makes the folder, and removes the files of an earlier run from it.
func tidy(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(out, "croft_*"))
	if err != nil {
		return err
	}
	for _, file := range append(old, filepath.Join(out, sumsFile)) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// release builds croft for one platform. It writes the archive and the SBOM to
// out and returns their names.
func release(ctx context.Context, top string, p platform, version, out string) ([]string, error) {
	work, err := os.MkdirTemp("", "croft-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, p.program())
	if err := build(ctx, top, p, version, binary); err != nil {
		return nil, err
	}
	return pack(top, p, version, binary, out)
}

// pack writes the archive and the SBOM of a binary.
func pack(top string, p platform, version, binary, out string) ([]string, error) {
	bill, err := readSBOM(binary, version)
	if err != nil {
		return nil, err
	}
	stem := fmt.Sprintf("croft_%s_%s_%s", version, p.os, p.arch)
	archive, sbom := stem+p.archiveType(), stem+".cdx.json"
	contents := []entry{
		{name: p.program(), file: binary, mode: 0o755},
		{name: "LICENSE", file: filepath.Join(top, "LICENSE"), mode: 0o644},
		{name: "README.md", file: filepath.Join(top, "README.md"), mode: 0o644},
	}
	if err := writeArchive(filepath.Join(out, archive), stem, contents); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(out, sbom), bill, 0o644); err != nil {
		return nil, err
	}
	return []string{archive, sbom}, nil
}

// writeSums writes the checksums of files in the folder out, in the form that
// sha256sum --check reads.
func writeSums(out string, files []string) error {
	files = slices.Sorted(slices.Values(files))
	var text strings.Builder
	for _, name := range files {
		sum, err := sumFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(out, sumsFile), []byte(text.String()), 0o644)
}

// sumFile returns the SHA-256 of a file, in hex.
func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
