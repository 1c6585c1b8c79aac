package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	usesStep      = regexp.MustCompile(`\buses["']?\s*:\s*(\S*)`)
	pinnedAction  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	anyRights     = regexp.MustCompile(`\bpermissions["']?\s*:`)
	readsOnly     = regexp.MustCompile(`(?m)^permissions:\n  contents: read\n(?:\S|\n|$)`)
	expression    = regexp.MustCompile(`(?m)^(.*?)\$\{\{\s*(\w+)`)
	settingOnly   = regexp.MustCompile(`^\s*-?\s*[\w-]+:(?:\s|$)`)
	watchedModule = regexp.MustCompile(`(?m)^\s*- (/\S*)$`)
)

// looseSupply reports workflows that run code which may change under its name,
// that have more rights than to read, that give secrets to changes of
// strangers, or that write expressions into scripts. It also reports Go modules
// that Dependabot does not watch.
//
// It does not parse YAML, so it accepts only the plain form of each setting: an
// action without quotes, and one block of rights for all jobs of a workflow.
func looseSupply(top string) ([]string, error) {
	var found []string
	workflows, err := filepath.Glob(filepath.Join(top, ".github", "workflows", "*.y*ml"))
	if err != nil {
		return nil, err
	}
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file)
		for _, m := range usesStep.FindAllSubmatch(text, -1) {
			if action := string(m[1]); !pinnedAction.MatchString(action) {
				found = append(found, name+" uses "+action+"; name the commit, because a tag can be moved")
			}
		}
		if !readsOnly.Match(text) || len(anyRights.FindAll(text, -1)) != 1 {
			found = append(found, name+" does not limit its token; give it permissions: contents: read, and no more")
		}
		for _, m := range expression.FindAllSubmatch(text, -1) {
			before, what := string(m[1]), string(m[2])
			if what != "hashFiles" && (!settingOnly.MatchString(before) || strings.Contains(before, "run:")) {
				found = append(found, name+" writes ${{ "+what+" }} into a script, where a name of a stranger's branch could run; "+
					"give it to the script by env")
			}
		}
		if strings.Contains(string(text), "pull_request_target") {
			found = append(found, name+" runs on pull_request_target, where changes of strangers meet the repository's secrets; use pull_request")
		}
	}
	unwatched, err := unwatchedModules(top)
	return append(found, unwatched...), err
}

// unwatchedModules reports Go modules that .github/dependabot.yml leaves out.
func unwatchedModules(top string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(top, ".github", "dependabot.yml"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	watched := map[string]bool{}
	for _, m := range watchedModule.FindAllSubmatch(text, -1) {
		watched[string(m[1])] = true
	}
	folders, err := moduleFolders(top)
	var found []string
	for _, dir := range folders {
		if dir = strings.TrimSuffix("/"+dir, "."); !watched[dir] {
			found = append(found, "the Go module in "+dir+" is not in .github/dependabot.yml")
		}
	}
	return found, err
}

// moduleFolders lists the folders with a go.mod, from the top: "." or
// "backend/redis".
func moduleFolders(top string) ([]string, error) {
	var folders []string
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != top && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || d.Name() != "go.mod" {
			return nil
		}
		dir, err := filepath.Rel(top, filepath.Dir(file))
		folders = append(folders, filepath.ToSlash(dir))
		return err
	})
	return folders, err
}
