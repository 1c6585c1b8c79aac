// Package model checks the protocol of Croft as a formal model: croft.pml, in Promela, by the model checker spin. It goes through everything that may happen within its bounds (four
// terms, two resources, messages that are lost, late, doubled and out of order, a store that forgets) and finds no breach of the laws; broken twins of the same model each have a counterexample.
//
// The model says that the protocol is right, not that the code follows it: for that there are the simulator and the suites.
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

// Checker is where the programs are.
type Checker struct {
	Spin, GCC string
	// Folder is where the model is made into a program; it must be empty, and nobody else's.
	Folder string
}

// Verdict is what spin says of a model.
type Verdict struct {
	States   int
	Megabyte float64
	// Breach is the assertion that fails; "" if everything was gone through and none does.
	Breach string
	// Story is how it comes to that, a step a line.
	Story []string
	// Unreached are steps of the model that nothing ever took: what it says about them would mean nothing.
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
	// Two gigabytes; no search for cycles, which the laws are not about.
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

// story is the steps of a counterexample, as spin prints them before it lists variables.
func story(out []byte) (steps []string) {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "spin: warning") { // "newer than its trail": made in the same second
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

// parse reads what the checker prints. It is an error if the checker did not get to the end of what it set out to do.
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
		if string(never[1]) != "-end-" { // nobody ever ends
			v.Unreached = append(v.Unreached, string(never[1]))
		}
	}
	return v, nil
}
