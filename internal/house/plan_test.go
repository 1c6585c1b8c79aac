package house

import (
	"fmt"
	"slices"
	"strings"
)

// module is the import path of the repository.
const module = "github.com/croft-dev/croft"

// root is the name of the top folder's room, the package that applications
// import.
const root = "(root)"

// A room is one folder at the top of the repository, with everything below it.
type room struct {
	// opens lists the rooms that its packages may import, besides their own.
	opens []string
	// outside allows other modules. Without it only the standard library and
	// golang.org/x are allowed.
	outside bool
	// apart keeps the folders in the room from importing each other.
	apart bool
}

var (
	laws      = []string{"tenure", "fence"}
	contracts = append([]string{"store", "guard"}, laws...)
	core      = append([]string{root}, contracts...)
	all       = append([]string{"work", "observe", "backend", "boundary", "server", "proof"}, core...)
)

// plan says which room may import which. Dependencies point one way: cmd, work,
// the root, then store and guard, then tenure and fence. A backend meets the
// contracts. It knows neither the root nor another backend, so a new technology
// is just a new folder.
//
// internal is a corridor. If a package imports an internal package, everything
// behind it counts as imported by that package too. So internal is no way
// around the plan.
var plan = map[string]room{
	"tenure":   {opens: laws},
	"fence":    {opens: laws},
	"store":    {opens: contracts},
	"guard":    {opens: contracts},
	root:       {opens: contracts},
	"work":     {opens: core},
	"observe":  {opens: append([]string{"work"}, core...), outside: true},
	"backend":  {opens: append([]string{"work"}, contracts...), outside: true, apart: true},
	"server":   {opens: append([]string{"work"}, core...)},
	"boundary": {opens: append([]string{"work"}, core...), apart: true},
	"contrib":  {opens: core, outside: true, apart: true},
	"proof":    {opens: all, outside: true},
	"cmd":      {opens: all, outside: true},
	"bench":    {opens: all, outside: true},
	"examples": {opens: all, outside: true, apart: true},
	"clients":  {},
	"tools":    {outside: true, apart: true},
	"internal": {opens: all},
}

// brokenPlan reports every import outside tests that the plan does not allow.
func brokenPlan(t *tree) []string {
	var found []string
	for _, p := range t.packages {
		r, ok := plan[p.room()]
		if !ok {
			found = append(found, fmt.Sprintf("%s: the plan knows no room %q; move the package into one it knows, or decide who may import whom and add a line to plan_test.go", p.dir, p.room()))
			continue
		}
		for _, i := range p.imports {
			if inside(i.path) {
				found = append(found, t.wrongDoors(p, r, i)...)
			} else if !r.outside && !lent(i.path) {
				found = append(found, fmt.Sprintf("%s: imports %s; %s imports only the standard library, golang.org/x and this module, so that it can be used without bringing anything along", i.at, i.path, p.room()))
			}
		}
	}
	return found
}

// wrongDoors reports what package p of room r may not reach by import i. That
// is the imported package, or, behind the corridor, everything that it imports.
func (t *tree) wrongDoors(p *pkg, r room, i imported) []string {
	var found []string
	seen := map[string]bool{}
	var follow func(path, via string)
	follow = func(path, via string) {
		if seen[path] {
			return
		}
		seen[path] = true
		dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		target := roomOf(dir)
		switch {
		case target == "internal":
			if behind := t.at(dir); behind != nil && p.room() != "internal" {
				for _, next := range behind.imports {
					if inside(next.path) {
						follow(next.path, " (through "+dir+")")
					}
				}
			}
		case target == p.room():
			if r.apart && folderOf(dir) != folderOf(p.dir) {
				found = append(found, fmt.Sprintf("%s: imports %s%s; %s knows no other %s: what both need belongs in a contract or in internal", i.at, path, via, folderOf(p.dir), p.room()))
			}
		case !slices.Contains(r.opens, target):
			found = append(found, fmt.Sprintf("%s: imports %s%s; %s may open into %s, never into %s", i.at, path, via, p.room(), strings.Join(r.opens, ", "), target))
		}
	}
	follow(i.path, "")
	return found
}

// inside reports whether an import path belongs to this module.
func inside(path string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// lent reports whether an import path is in the standard library or
// golang.org/x.
func lent(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") || strings.HasPrefix(path, "golang.org/x/")
}

// roomOf returns the room of a folder.
func roomOf(dir string) string {
	if dir == "." || dir == "" {
		return root
	}
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// folderOf returns the folder within its room: backend/dir for backend/dir and
// everything below it.
func folderOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}
