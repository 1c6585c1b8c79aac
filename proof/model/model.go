// Package model checks Croft's protocol as a formal model. The model is
// croft.pml, in Promela, and the model checker spin searches it. The search
// covers everything that may happen within its bounds: four terms, two
// resources, a store that forgets, and messages that are lost, late, doubled or
// out of order. It finds no broken law. Broken twins of the model each have a
// counterexample.
//
// The model shows that the protocol is right. It does not show that the code
// follows it: the simulator and the suites do that.
package model

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

//go:embed croft.pml
var text []byte

// Checker has the paths of the programs.
type Checker struct {
	Spin, GCC string
	// Folder is where the model is compiled. It must be empty, and for this
	// Checker alone.
	Folder string
}

// Verdict is the result of a search.
type Verdict struct {
	States   int
	Megabyte float64
	// Breach is the assertion that fails. It is "" if the search was complete
	// and none fails.
	Breach string
	// Story is the way to the breach, one step a line.
	Story []string
	// Unreached are steps of the model that never happen. The search says
	// nothing about them.
	Unreached []string
}

// Check searches a model with some names defined ("SKEW", "TERMS=3"). With
// shortest it searches breadth first and ends at a shortest counterexample: use
// that for models that have one. Without, it searches depth first, which takes
// less memory.
func (c Checker) Check(ctx context.Context, shortest bool, defines ...string) (Verdict, error) {
	if err := os.WriteFile(filepath.Join(c.Folder, "croft.pml"), text, 0o600); err != nil {
		return Verdict{}, err
	}
	var flags []string
	for _, d := range defines {
		flags = append(flags, "-D"+d)
	}
	if out, err := c.run(ctx, c.Spin, append(flags, "-a", "croft.pml")...); err != nil {
		return Verdict{}, fmt.Errorf("model: spin cannot read it: %w: %s", err, out)
	}
	how := []string{"-O1", "-DCOLLAPSE"} // -O2 takes longer to compile than it saves
	if shortest {
		how = []string{"-O0", "-DBFS"}
	}
	// At most two gigabytes. No search for cycles: the laws are not about them.
	if out, err := c.run(
		ctx, c.GCC, append(how, "-w", "-DSAFETY", "-DMEMLIM=2000", "-o", "pan", "pan.c")...,
	); err != nil {
		return Verdict{}, fmt.Errorf("model: the checker cannot be compiled: %w: %s", err, out)
	}
	out, err := c.run(ctx, "./pan", "-m1000", "-w24")
	if err != nil {
		return Verdict{}, fmt.Errorf("model: the checker failed: %w: %s", err, out)
	}
	v, err := parse(out)
	if err != nil || v.Breach == "" {
		return v, err
	}
	out, err = c.run(ctx, c.Spin, append(flags, "-t", "-T", "croft.pml")...)
	if v.Story = story(out); len(v.Story) == 0 {
		return v, errors.Join(fmt.Errorf("model: spin does not tell the counterexample: %s", out), err)
	}
	return v, nil
}

// story returns the steps of a counterexample. Spin prints them before it lists
// variables.
func story(out []byte) (steps []string) {
	for line := range strings.Lines(string(out)) {
		// "newer than its trail": both files were written in the same second.
		if strings.HasPrefix(line, "spin: warning") {
			continue
		}
		if strings.HasPrefix(line, "spin: ") || strings.HasPrefix(line, "#") {
			break
		}
		steps = append(steps, strings.TrimSpace(line))
	}
	return steps
}

func (c Checker) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.Folder
	return cmd.CombinedOutput()
}

var (
	statesLine = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	memoryLine = regexp.MustCompile(`(?m)^\s*([\d.]+)\s+total actual memory usage`)
	breachLine = regexp.MustCompile(`(?m)^pan:\d+: (.*) \(at depth \d+\)`)
	neverLine  = regexp.MustCompile(`(?m)^\s*croft\.pml:\d+, state \d+, "(.*)"`)
)

// parse reads the output of the checker. It returns an error if the search did
// not finish.
func parse(out []byte) (v Verdict, err error) {
	states, memory := statesLine.FindSubmatch(out), memoryLine.FindSubmatch(out)
	if states == nil || memory == nil {
		return v, fmt.Errorf("model: the checker does not say how far it got: %s", out)
	}
	if v.States, err = strconv.Atoi(string(states[1])); err != nil {
		return v, err
	}
	if v.Megabyte, err = strconv.ParseFloat(string(memory[1]), 64); err != nil {
		return v, err
	}
	if breach := breachLine.FindSubmatch(out); breach != nil {
		v.Breach = string(breach[1])
		return v, nil
	}
	if !bytes.Contains(out, []byte("errors: 0")) ||
		bytes.Contains(out, []byte("Search not completed")) ||
		bytes.Contains(out, []byte("max search depth too small")) {
		return v, fmt.Errorf("model: the checker did not go through all of it: %s", out)
	}
	for _, never := range neverLine.FindAllSubmatch(out, -1) {
		if string(never[1]) != "-end-" { // no process ever ends
			v.Unreached = append(v.Unreached, string(never[1]))
		}
	}
	return v, nil
}
