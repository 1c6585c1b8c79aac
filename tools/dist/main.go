// Command dist builds the files of a release. `make dist` runs it:
//
//	go run ./tools/dist -version v1.2.3 -out dist
//
// For every platform it builds croft and writes an archive with the binary, the
// license, the manual and the completions of shells. For Linux it also writes
// packages (.deb and .rpm), and croft-slim, which has no clients of servers.
// Beside each archive it writes an SBOM: the list of the Go modules that the
// binary was linked from. croft.rb is the formula for Homebrew. SHA256SUMS
// holds the checksums of all these files.
//
// A version is built from its tag alone: in a clone, the commit that is checked
// out must have the tag, and no file may differ from it. Everything else is a
// development version, which names the commit.
//
// The same source and the same Go release give the same bytes, on any machine
// and in any folder. Nothing in the output depends on the time, the user or
// the path of the build: all dates are that of the commit.
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
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sumsFile is the name of the file with the checksums.
const sumsFile = "SHA256SUMS"

// platforms are the systems that a release is built for.
var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "arm64"},
	{"darwin", "amd64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// variant is a choice of backends.
type variant struct {
	name  string
	flags []string // of go build
}

// whole has all backends. slim has those that need no client of a server.
var (
	whole = variant{name: "croft"}
	slim  = variant{"croft-slim", []string{
		"-tags=croft_no_etcd,croft_no_gcs,croft_no_postgres,croft_no_redis,croft_no_s3",
	}}
)

// stem is the name of the files for a platform, without their type.
func (v variant) stem(p platform, o origin) string {
	return fmt.Sprintf("%s_%s_%s_%s", v.name, o.version, p.os, p.arch)
}

func main() {
	version := flag.String("version", "",
		"the version, such as v1.2.3; default: the tag that is checked out, or a development version")
	nfpm := flag.String("nfpm", ".tools/bin/nfpm", "the program of tools/nfpm, which writes packages")
	out := flag.String("out", "dist", "the folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, flag.Args(), *version, *out, *nfpm, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, version, out, nfpm string, said io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	const top = "." // make runs this at the top of the repository
	o, err := findOrigin(ctx, top, version)
	if err != nil {
		return err
	}
	if err := tidy(out); err != nil {
		return err
	}
	fmt.Fprintf(said, "croft %s\n", o.version)
	work, err := os.MkdirTemp("", "croft-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	completions, err := try(ctx, top, o, work)
	if err != nil {
		return err
	}
	r := releaser{top: top, origin: o, completions: completions, nfpm: nfpm, out: out}
	var files []string
	for _, p := range platforms {
		made, err := r.release(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, name := range made {
			fmt.Fprintln(said, filepath.Join(out, name))
		}
		files = append(files, made...)
	}
	text, err := writeFormula(o, out)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, formulaFile), []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(said, "%s\n%s\n", filepath.Join(out, formulaFile), filepath.Join(out, sumsFile))
	return writeSums(out, append(files, formulaFile))
}

// try builds croft for this machine and runs it: it must know its origin. It
// returns the folder with its completion scripts.
func try(ctx context.Context, top string, o origin, work string) (completions string, err error) {
	p := platform{runtime.GOOS, runtime.GOARCH}
	binary := filepath.Join(work, p.program())
	if err := build(ctx, top, p, o, binary); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("croft --version: %w", err)
	}
	want := fmt.Sprintf("croft %s (commit not recorded)", o.version)
	if o.commit != "" {
		want = fmt.Sprintf("croft %s (commit %.12s, %s)", o.version, o.commit, o.date.Format(time.RFC3339))
	}
	if got := strings.TrimSpace(string(said)); got != want {
		return "", fmt.Errorf("croft --version says %q, want %q", got, want)
	}
	completions = filepath.Join(work, "completions")
	if err := os.Mkdir(completions, 0o755); err != nil {
		return "", err
	}
	return completions, writeCompletions(ctx, binary, completions)
}

// versions are semantic versions as Go tags them. A version becomes part of
// file names and of the linker's arguments.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// tidy makes the folder, and removes the files of an earlier run from it.
func tidy(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	old := []string{filepath.Join(out, formulaFile), filepath.Join(out, sumsFile)}
	for _, v := range []variant{whole, slim} {
		more, err := filepath.Glob(filepath.Join(out, v.name+"_*"))
		if err != nil {
			return err
		}
		old = append(old, more...)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// releaser makes the files of one release.
type releaser struct {
	top         string // folder of the source
	origin      origin
	completions string // folder of the completion scripts
	nfpm        string // program of tools/nfpm
	out         string // folder of the results
}

// release builds croft for one platform, writes its files and returns their
// names.
func (r releaser) release(ctx context.Context, p platform) ([]string, error) {
	made, err := r.releaseVariant(ctx, p, whole)
	if err != nil || p.os != "linux" {
		return made, err
	}
	more, err := r.releaseVariant(ctx, p, slim)
	return append(made, more...), err
}

// releaseVariant does so for one variant. Only the whole croft has packages.
func (r releaser) releaseVariant(ctx context.Context, p platform, v variant) ([]string, error) {
	work, err := os.MkdirTemp("", "croft-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, p.program())
	if err := build(ctx, r.top, p, r.origin, binary, v.flags...); err != nil {
		return nil, err
	}
	made, err := r.pack(v, p, binary)
	if err != nil || p.os != "linux" || v.name != whole.name {
		return made, err
	}
	packages, err := r.packages(ctx, p, binary)
	return append(made, packages...), err
}

// pack writes the archive and the SBOM of a binary.
func (r releaser) pack(v variant, p platform, binary string) ([]string, error) {
	bill, err := readSBOM(binary, r.origin.version)
	if err != nil {
		return nil, err
	}
	contents, err := archiveFiles(r.top, p, binary, r.completions)
	if err != nil {
		return nil, err
	}
	stem := v.stem(p, r.origin)
	archive, sbom := stem+p.archiveType(), stem+".cdx.json"
	if err := writeArchive(filepath.Join(r.out, archive), stem, r.origin.date, contents); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.out, sbom), bill, 0o644); err != nil {
		return nil, err
	}
	return []string{archive, sbom}, nil
}

// packages writes the packages of a binary for Linux.
func (r releaser) packages(ctx context.Context, p platform, binary string) ([]string, error) {
	var made []string
	for _, kind := range []string{"deb", "rpm"} {
		name, err := r.packageOf(ctx, kind, p, binary)
		if err != nil {
			return nil, err
		}
		made = append(made, name)
	}
	return made, nil
}

// packageOf writes one package, and returns its name.
func (r releaser) packageOf(ctx context.Context, kind string, p platform, binary string) (string, error) {
	work, err := os.MkdirTemp("", "croft-dist-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	entries, err := packageFiles(r.top, kind, binary, r.completions, work)
	if err != nil {
		return "", err
	}
	name := whole.stem(p, r.origin) + "." + kind
	return name, writePackage(ctx, r.nfpm, filepath.Join(r.out, name), p, r.origin, entries)
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
