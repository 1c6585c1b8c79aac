package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// command returns a command whose output is printed for a part.
func (p *program) command(ctx context.Context, part, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = p.progress.lines(part), p.progress.lines(part)
	return c
}

// lowPriority returns a command that uses one processor at most, with a
// priority of nice 15.
func (p *program) lowPriority(ctx context.Context, part, name string, args ...string) *exec.Cmd {
	if nice, err := exec.LookPath("nice"); err == nil {
		name, args = nice, append([]string{"-n", "15", name}, args...)
	}
	c := p.command(ctx, part, name, args...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	return c
}

// objects runs a command that prints JSON objects. It passes each to read as
// soon as it comes.
func objects[T any](c *exec.Cmd, read func(T)) error {
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	decoder := json.NewDecoder(out)
	for {
		var one T
		if err = decoder.Decode(&one); err != nil {
			break
		}
		read(one)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	_, _ = io.Copy(io.Discard, out)
	return errors.Join(c.Wait(), err)
}

// eachLine runs a command and passes each line of its output to read as soon as
// it comes. A line longer than 1 MiB ends the reading, but not the command.
func eachLine(c *exec.Cmd, read func(line string)) error {
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		read(lines.Text())
	}
	_, _ = io.Copy(io.Discard, out)
	return c.Wait()
}

// simulate runs seeds that no earlier run has used.
func (p *program) simulate(ctx context.Context) error {
	type soak struct {
		Profile         string
		Seeds, Requests int64
		Least           int64 `json:"least_requests"`
		Faults          int64
		First           uint64 `json:"first_seed"`
		Broken          []struct {
			Case   struct{ Seed uint64 }
			Broken struct{ Law, What string }
		}
		Missing  []struct{ Kind, Name string }
		Coverage map[string]map[string]int64
	}
	c := p.lowPriority(
		ctx, "sim", filepath.Join(p.bin, "sim"), "--json", "--workers=1",
		fmt.Sprintf("--seeds=%d", p.seeds), fmt.Sprintf("--first=%d", p.run.FirstSeed),
	)
	return objects(c, func(got soak) {
		p.run.Seeds += got.Seeds
		p.run.Requests += got.Requests
		p.run.Faults += got.Faults
		p.run.Profiles = append(p.run.Profiles, profile{got.Profile, got.Seeds, got.Requests, got.Coverage})
		p.run.NextSeed = max(p.run.NextSeed, got.First+uint64(got.Seeds))
		if p.run.LeastRequests == 0 || got.Least < p.run.LeastRequests {
			p.run.LeastRequests = got.Least
		}
		for _, b := range got.Broken {
			p.fail(
				"sim",
				fmt.Sprintf("go run ./proof/cmd/sim --profile %s --seed %d", got.Profile, b.Case.Seed),
				"%s, seed %d: law %s: %s", got.Profile, b.Case.Seed, b.Broken.Law, b.Broken.What,
			)
		}
		for _, m := range got.Missing {
			p.fail(
				"sim",
				fmt.Sprintf(
					"go run ./proof/cmd/sim --profile %s --first %d --seeds %d --coverage",
					got.Profile, got.First, got.Seeds,
				),
				"%s: never seen in %d seeds: %s %s", got.Profile, got.Seeds, m.Kind, m.Name,
			)
		}
	})
}

func (p *program) variants(ctx context.Context) error {
	type variant struct {
		Variant, Says, Again string
		Part                 string `json:"part"`
		Killed               bool
	}
	return objects(p.command(ctx, "variants", filepath.Join(p.bin, "mutants"), "-json"), func(got variant) {
		if p.run.Mutants++; got.Killed {
			p.run.Killed++
			return
		}
		p.fail("variants", got.Again, "%s: %s is not found", got.Part, got.Variant)
	})
}

func (p *program) runChaos(ctx context.Context) error {
	c := p.command(
		ctx, "chaos", filepath.Join(p.bin, "chaos"), "-json", "-at-once=1", "-backend="+p.backends,
		"-for="+p.chaos.String(), "-control="+p.control.String(),
	)
	return objects(c, func(got chaosRun) {
		p.run.Chaos = append(p.run.Chaos, got)
		again := fmt.Sprintf(
			"go run ./proof/chaos/cmd -backend %s -seed %d -for %s -keep out", got.Backend,
			got.Seed, p.chaos,
		)
		switch {
		case len(got.Violations) > 0:
			p.fail(
				"chaos", again, "%s: %d breaches, the first of %s: %s: %s", got.Backend,
				len(got.Violations), got.Violations[0].Key, got.Violations[0].Law,
				got.Violations[0].Text,
			)
		case !got.Guarded && got.Lost == 0:
			p.fail(
				"chaos", again, "%s without guards has lost nothing in %s: the faults are too mild",
				got.Backend, p.control,
			)
		case got.Guarded:
			p.progress.say(
				"chaos", "%s with guards: %s updates, none lost, %d refused", got.Backend,
				thousands(got.Updates), got.Refusals,
			)
		default:
			p.progress.say(
				"chaos", "%s without guards: %d of %s updates lost", got.Backend, got.Lost,
				thousands(got.Updates),
			)
		}
	})
}

var (
	takeoverLine = regexp.MustCompile(`^ *(\d+) rounds, (\d+) faults of`)
	peersLine    = regexp.MustCompile(`(\d+) answers compared`)
	cutsLine     = regexp.MustCompile(`(\d+) cuts, (\d+) different folders, (\d+) recovered`)
	crowdLine    = regexp.MustCompile(`(\d+) rounds of (\d+) processes`)
	statesLine   = regexp.MustCompile(`(\d+) states, (\d+) MB`)
)

func (p *program) cuts(ctx context.Context) error {
	return p.test(ctx, "cuts", "./proof/crash", "-all", cutsLine, func(n []int64) {
		p.run.Cuts, p.run.Folders = p.run.Cuts+n[0], p.run.Folders+n[2]
	})
}

// crowds runs the full suites of the stores on this machine, with more
// contenders, rounds, keys and processes than every test run has.
func (p *program) crowds(ctx context.Context) error {
	var failed error
	for _, pkg := range []string{"./backend/dir", "./backend/sqlite"} {
		failed = errors.Join(failed, p.test(ctx, "crowds", pkg, "-all", crowdLine, func(n []int64) {
			p.run.Crowd += n[0] * n[1]
		}))
	}
	return failed
}

func (p *program) model(ctx context.Context) error {
	return p.test(ctx, "model", "./proof/model", "-deep", statesLine, func(n []int64) { p.run.States += n[0] })
}

// takeovers replaces agents behind croft mcp, with random faults from a new
// seed. The last line of the test has the number of all.
func (p *program) takeovers(ctx context.Context) error {
	return p.test(ctx, "takeovers", "./examples/mcp", "-all", takeoverLine, func(n []int64) {
		p.run.Takeovers = max(p.run.Takeovers, n[0])
	})
}

// peers lets the MCP clients and servers of others talk through croft mcp.
func (p *program) peers(ctx context.Context) error {
	return p.test(ctx, "peers", "./proof/peers", "-all", peersLine, func(n []int64) { p.run.Peers += n[0] })
}

var (
	targetLine = regexp.MustCompile(`^fuzz (\S+) (Fuzz\S+)$`)
	execsLine  = regexp.MustCompile(`^fuzz: .* execs: (\d+) `)
)

// fuzz tries random inputs at every fuzz target. An input that fails is written
// into the package's testdata/fuzz.
func (p *program) fuzz(ctx context.Context) error {
	c := p.lowPriority(ctx, "fuzz", "tools/fuzz", fmt.Sprintf("%dx", p.inputs))
	var pkg, target string
	var tried int64 // inputs of this target, from the last line
	err := eachLine(c, func(line string) {
		if m := targetLine.FindStringSubmatch(line); m != nil {
			pkg, target = m[1], m[2]
			p.run.Targets++
			p.run.Inputs += tried
			tried = 0
		}
		if m := execsLine.FindStringSubmatch(line); m != nil {
			tried, _ = strconv.ParseInt(m[1], 10, 64) // the pattern allows digits only
		}
		if failLine.MatchString(line) {
			again := fmt.Sprintf("go test -run='^%s$' %s # the input is in its testdata/fuzz", target, pkg)
			p.fail("fuzz", again, "%s %s", pkg, target)
		}
	})
	p.run.Inputs += tried
	return err
}

var failLine = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)

// test runs the tests of a package. It passes the numbers in lines that match
// the pattern to the caller.
func (p *program) test(ctx context.Context, part, pkg, flag string, figures *regexp.Regexp, add func(n []int64)) error {
	c := p.lowPriority(ctx, part, "go", "test", "-count=1", "-v", "-timeout=60m", pkg, flag)
	c.Env = append(c.Env, "CI=true") // a check that cannot run counts as failed
	var failed []string
	all := strings.Builder{}
	err := eachLine(c, func(line string) {
		fmt.Fprintln(&all, line)
		if m := figures.FindStringSubmatch(line); m != nil {
			var n []int64
			for _, text := range m[1:] {
				number, _ := strconv.ParseInt(text, 10, 64) // the pattern allows digits only
				n = append(n, number)
			}
			add(n)
			p.progress.say(part, "%s", m[0])
		}
		if m := failLine.FindStringSubmatch(line); m != nil {
			failed = append(failed, m[1])
		}
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	_, _ = fmt.Fprint(p.progress.lines(part), all.String())
	for i, name := range failed {
		if i+1 < len(failed) && strings.HasPrefix(failed[i+1], name+"/") {
			continue // it fails because of a subtest
		}
		p.fail(
			part,
			fmt.Sprintf(
				"go test -count=1 -v -run '^%s$' %s %s",
				strings.ReplaceAll(strings.ReplaceAll(name, "'", "."), "/", "$/^"), pkg, flag,
			),
			"%s", name,
		)
	}
	return err
}
