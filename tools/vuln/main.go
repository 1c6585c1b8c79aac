// Command vuln asks govulncheck for known vulnerabilities in every Go module
// of the repository: Croft itself, the benchmarks and the tools. `make vuln`
// runs it.
//
// It first asks the vulnerability database one question. Without the right
// answer, or if the database is more than 30 days old, it looks at nothing,
// says "NOT CHECKED" and ends with status 3. So a machine without a network
// never seems to have found nothing.
//
// Files of other systems call other code. So it looks at Croft itself, which is
// all modules in go.work together, once for every system that releases are
// built for.
//
// Its status is 0 if nothing was found, 1 if something was found or a module
// could not be read, 2 for wrong arguments, and 3 for no database or an old
// one.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitFound      = 1
	exitUsage      = 2
	exitNotChecked = 3
)

// govulncheckFound is govulncheck's status when it found something.
const govulncheckFound = 3

// patience is the time limit of the first question to the database.
const patience = time.Minute

// oldest is the age at which a copy of the database is too old. Go's own
// changes every few days.
const oldest = 30 * 24 * time.Hour

// systems are those that releases are built for, see tools/dist.
var systems = []string{"linux", "darwin", "windows"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := scanner{stdout: stdout, stderr: stderr}
	flags := flag.NewFlagSet("vuln", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.program, "govulncheck", "govulncheck", "the program to run")
	flags.StringVar(&s.database, "db", "",
		"`URL` of the vulnerability database, or file:///FOLDER of a copy; default: Go's own")
	flags.StringVar(&s.top, "top", ".", "look for modules in this folder and below")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "vuln: unknown argument %q\n", flags.Arg(0))
		return exitUsage
	}

	if err := s.askDatabase(ctx); err != nil {
		fmt.Fprintf(stderr, "vuln: NOT CHECKED: the vulnerability database is of no use:\n%v\n"+
			"vuln: no module was looked at. Try again where the database can be reached,\n"+
			"vuln: or name a copy of it: make vuln VULNFLAGS=\"-db file:///FOLDER\"\n", err)
		return exitNotChecked
	}
	modules, err := findModules(s.top)
	if err == nil {
		modules, err = together(ctx, s.top, modules)
	}
	if err != nil {
		fmt.Fprintln(stderr, "vuln:", err)
		return exitFound
	}
	return s.scanAll(ctx, modules)
}

// scanner runs govulncheck.
type scanner struct {
	program, database, top string
	stdout, stderr         io.Writer
}

// askDatabase asks for a vulnerability that every copy of the database has
// known since 2021. It is needed because govulncheck takes an empty folder for
// a database without vulnerabilities. Its -version ignores a missing database.
func (s *scanner) askDatabase(ctx context.Context) error {
	const module, known = "golang.org/x/text@v0.3.0", "GO-2021-0113"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := s.command(ctx, "-mode=query", "-format=json", module)
	var answer, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &answer, &said
	if err := cmd.Run(); err != nil {
		return errors.Join(err, context.Cause(ctx), errors.New(strings.TrimSpace(said.String())))
	}
	if !strings.Contains(answer.String(), `"`+known+`"`) {
		return fmt.Errorf("it does not know %s in %s", known, module)
	}
	var first struct {
		Config struct {
			Changed time.Time `json:"db_last_modified"`
		} `json:"config"`
	}
	if err := json.NewDecoder(&answer).Decode(&first); err != nil {
		return fmt.Errorf("govulncheck's answer cannot be read: %w", err)
	}
	changed := first.Config.Changed
	if time.Since(changed) > oldest {
		return fmt.Errorf("it was last changed on %s: get a newer copy", changed.Format(time.DateOnly))
	}
	fmt.Fprintf(s.stdout, "vuln: the database was last changed on %s\n", changed.Format(time.DateOnly))
	return nil
}

// scanAll scans every module, even after one with a vulnerability.
func (s *scanner) scanAll(ctx context.Context, modules []string) int {
	var found, failed []string
	for _, dir := range modules {
		fmt.Fprintf(s.stdout, "== %s\n", dir)
		err := s.scan(ctx, dir)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == govulncheckFound:
			found = append(found, dir)
		case err != nil:
			fmt.Fprintf(s.stderr, "vuln: %s: %v\n", dir, err)
			failed = append(failed, dir)
		}
	}
	if len(found)+len(failed) == 0 {
		fmt.Fprintln(s.stdout, "vuln: looked at every module: none calls code with a known vulnerability")
		return 0
	}
	if len(found) > 0 {
		fmt.Fprintf(s.stderr, "vuln: FOUND, as above, in: %s\n", strings.Join(found, " "))
	}
	if len(failed) > 0 {
		fmt.Fprintf(s.stderr, "vuln: NOT CHECKED, as above: %s\n", strings.Join(failed, " "))
	}
	return exitFound
}

// scan scans one module. A module without packages of its own pins a tool: scan
// builds the tool, and scans its binary.
func (s *scanner) scan(ctx context.Context, dir string) error {
	own, err := hasPackages(dir)
	if err != nil {
		return err
	}
	if own && dir == filepath.Clean(s.top) {
		return s.scanSystems(ctx, dir)
	}
	if own {
		return s.govulncheck(ctx, []string{"GOWORK=off"}, "-C", dir, "./...")
	}
	work, err := os.MkdirTemp("", "croft-vuln-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", work+string(filepath.Separator), "tool")
	build.Dir, build.Stderr = dir, s.stderr
	build.Env = append(os.Environ(), "GOWORK=off")
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build tool: %w", err)
	}
	binaries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	var all error
	for _, b := range binaries {
		all = errors.Join(all, s.govulncheck(ctx, nil, "-mode=binary", filepath.Join(work, b.Name())))
	}
	return all
}

// scanSystems scans all packages of the workspace as releases are built: for
// each system, and without C.
func (s *scanner) scanSystems(ctx context.Context, dir string) error {
	var all error
	for _, system := range systems {
		fmt.Fprintf(s.stdout, "-- for %s\n", system)
		all = errors.Join(all, s.govulncheck(ctx, []string{"GOOS=" + system, "CGO_ENABLED=0"}, "-C", dir, "work"))
	}
	return all
}

// govulncheck runs the program with settings added to its environment.
func (s *scanner) govulncheck(ctx context.Context, settings []string, args ...string) error {
	cmd := s.command(ctx, args...)
	cmd.Env = append(os.Environ(), settings...)
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	return cmd.Run()
}

func (s *scanner) command(ctx context.Context, args ...string) *exec.Cmd {
	if s.database != "" {
		args = append([]string{"-db", s.database}, args...)
	}
	return exec.CommandContext(ctx, s.program, args...)
}

// findModules lists the folders with a go.mod, except below folders that the go
// command ignores.
func findModules(top string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && passedOver(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && d.Name() == "go.mod":
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("no go.mod in %s or below", top)
	}
	return dirs, err
}

// together leaves out the modules that go.work names, but for the one at the
// top: they are looked at with it.
func together(ctx context.Context, top string, modules []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m in %s: %w", top, err)
	}
	var inWork []os.FileInfo
	for dir := range strings.Lines(string(out)) {
		info, err := os.Stat(strings.TrimSpace(dir))
		if err != nil {
			return nil, err
		}
		inWork = append(inWork, info)
	}
	var left []string
	for _, dir := range modules {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		same := func(other os.FileInfo) bool { return os.SameFile(info, other) }
		if dir == filepath.Clean(top) || !slices.ContainsFunc(inWork, same) {
			left = append(left, dir)
		}
	}
	return left, nil
}

// hasPackages reports whether a module has Go files, without those of the
// modules below it.
func hasPackages(module string) (bool, error) {
	has := false
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case has:
			return fs.SkipAll
		case d.IsDir() && path != module:
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || passedOver(d.Name()) {
				return fs.SkipDir
			}
		case strings.HasSuffix(d.Name(), ".go"):
			has = true
		}
		return nil
	})
	return has, err
}

// passedOver reports whether the go command ignores folders of this name.
func passedOver(name string) bool {
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}
