package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// commands are the two that the README gives to a newcomer: see it work, and
// check it.
var commands = []string{
	`go run ./cmd/croft run hello -- echo "my turn"`,
	`make test`,
}

var (
	makeInline = regexp.MustCompile("`make ([a-z][a-z-]*)")
	makeLine   = regexp.MustCompile(`^\s*(?:\$ )?make ([a-z][a-z-]*)`)
	makeStep   = regexp.MustCompile(`(?m)^\s*(?:- )?run: make ([a-z][a-z-]*)`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// brokenPromises reports promises of the README to a newcomer that do not hold.
// It also reports make targets that a workflow runs and the Makefile lacks.
func brokenPromises(top string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(top, "README.md"))
	if os.IsNotExist(err) {
		return []string{"README.md is missing: a newcomer begins there"}, nil
	}
	if err != nil {
		return nil, err
	}
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, c := range commands {
		if !strings.Contains(string(text), c) {
			found = append(found, "README.md does not give the command: "+c)
		}
	}
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	for _, name := range namedTargets(string(text)) {
		if !targets[name] {
			found = append(found, "README.md names `make "+name+"`, which the Makefile does not have")
		}
	}
	workflows, err := filepath.Glob(filepath.Join(top, ".github", "workflows", "*.y*ml"))
	if err != nil {
		return nil, err
	}
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range makeStep.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !targets[name] {
				found = append(found, filepath.Base(file)+" runs `make "+name+"`, which the Makefile does not have")
			}
		}
	}
	return found, nil
}

// namedTargets lists the make targets that a document names in code, inline or
// in a fenced block. It ignores prose like "make sure".
func namedTargets(text string) []string {
	var names []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			if m := makeLine.FindStringSubmatch(line); m != nil {
				names = append(names, m[1])
			}
			continue
		}
		for _, m := range makeInline.FindAllStringSubmatch(line, -1) {
			names = append(names, m[1])
		}
	}
	return names
}
