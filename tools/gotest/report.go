package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// failures prints everything that went wrong: builds first, then packages in
// the order in which they ended.
func (r *run) failures(w io.Writer) {
	told := map[string]bool{}
	for _, p := range r.order {
		if p.outcome == "fail" && p.build != "" && !told[p.build] {
			told[p.build] = true
			fmt.Fprintf(w, "\n--- %s does not build\n", r.short(p))
			if said := r.builds[p.build]; said != nil {
				fmt.Fprint(w, said.String())
			}
			fmt.Fprintf(w, "again: %s\n", r.command(p, ""))
		}
	}
	for _, p := range r.order {
		if p.outcome == "fail" && p.build == "" {
			r.packageFailures(w, p)
		}
	}
	for _, p := range r.packages { // unfinished: interrupted, or go test died
		if p.outcome == "" {
			fmt.Fprintf(w, "\n--- %s did not end\n", r.short(p))
		}
	}
}

func (r *run) packageFailures(w io.Writer, p *pkg) {
	named := 0
	for _, t := range p.order {
		if t.outcome == "pass" || t.outcome == "skip" || p.blamesChild(t) {
			continue
		}
		named++
		how := fmt.Sprintf("failed after %.1fs", t.took.Seconds())
		if t.outcome == "" {
			how = "did not end"
		}
		fmt.Fprintf(w, "\n--- %s %s %s\n", r.short(p), t.name, how)
		t.output.write(w)
		fmt.Fprintf(w, "again: %s\n", r.command(p, t.name))
	}
	if named > 0 && p.output.alarms() {
		fmt.Fprintf(w, "\n--- %s, outside its tests\n", r.short(p))
		p.output.write(w)
	}
	if named == 0 {
		fmt.Fprintf(w, "\n--- %s failed, but none of its tests\n", r.short(p))
		p.output.write(w)
		fmt.Fprintf(w, "again: %s\n", r.command(p, ""))
	}
}

// blamesChild reports whether a test failed only because of its subtests. They
// are reported instead of it.
func (p *pkg) blamesChild(t *test) bool {
	return slices.ContainsFunc(p.order, func(child *test) bool {
		return strings.HasPrefix(child.name, t.name+"/") && child.outcome != "pass" && child.outcome != "skip"
	}) && !t.output.says()
}

// croft is the root module. Modules below it lie in the folders of their names.
// A run begins in one of them only if the module is not in go.work.
const croft = "github.com/croft-dev/croft"

// command returns the command that runs a test alone, or a package if name is
// empty.
func (r *run) command(p *pkg, name string) string {
	words := []string{"go", "test"}
	if folder, ok := strings.CutPrefix(r.module, croft+"/"); ok {
		words = []string{"cd", folder, "&&", "GOWORK=off", "go", "test"}
	}
	for _, arg := range r.args {
		if !strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "-parallel") || strings.HasPrefix(arg, "-timeout") ||
			strings.HasPrefix(arg, "-p=") {
			continue // packages, and flags that matter only for many of them
		}
		words = append(words, arg)
	}
	if name != "" {
		steps := strings.Split(name, "/")
		for i, step := range steps {
			steps[i] = "^" + regexp.QuoteMeta(step) + "$"
		}
		words = append(words, "-run", "'"+strings.Join(steps, "/")+"'")
	}
	return strings.Join(append(words, r.short(p)), " ")
}

// skips lists the skipped tests and the reasons.
func (r *run) skips(w io.Writer) {
	count := 0
	for _, p := range r.order {
		for _, t := range p.order {
			if t.outcome != "skip" {
				continue
			}
			if count++; count == 1 {
				fmt.Fprintln(w, "\nNOT CHECKED:")
			}
			fmt.Fprintf(w, "  %s %s: %s\n", r.short(p), t.name, t.output.last())
		}
	}
}

// slowest lists the slowest packages, and the slowest test of each.
func (r *run) slowest(w io.Writer, most int) {
	all := slices.Clone(r.order)
	slices.SortFunc(all, func(a, b *pkg) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintln(w, "\nslowest packages, and the slowest test of each:")
	for _, p := range all[:min(most, len(all))] {
		var slow *test
		for _, t := range p.order {
			if !strings.Contains(t.name, "/") && (slow == nil || t.took > slow.took) {
				slow = t
			}
		}
		if slow != nil {
			fmt.Fprintf(w, "  %6.1fs %s: %s %.1fs\n", p.took.Seconds(), r.short(p), slow.name, slow.took.Seconds())
		}
	}
}

// total prints the last line: how many tests ended how.
func (r *run) total(now time.Time) string {
	ended := map[string]int{}
	for _, p := range r.order {
		for _, t := range p.order {
			ended[cmp.Or(t.outcome, "fail")]++
		}
		if p.outcome == "fail" && len(p.tests) == 0 {
			ended["fail"]++
		}
	}
	return fmt.Sprintf("\n%d tests passed, %d failed, %d skipped, in %d packages and %.0f s",
		ended["pass"], ended["fail"], ended["skip"], len(r.order), now.Sub(r.began).Seconds())
}
