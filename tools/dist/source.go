package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// checkSource refuses to name a build after a tag if the source in the clone is
// not the tag's. Without this, an uncommitted file would become part of the
// release.
func checkSource(ctx context.Context, top, version string) error {
	changed, err := changes(ctx, top)
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf(
			"this is not the source of %s; commit or remove these files, or give no version:\n%s",
			version, changed,
		)
	}
	tags, err := git(ctx, top, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(tags), version) {
		return fmt.Errorf(
			"the commit that is checked out is not tagged %s; check that tag out, or give no version",
			version,
		)
	}
	return nil
}

// changes lists the files that differ from the commit, and those not in it.
func changes(ctx context.Context, top string) (string, error) {
	changed, err := git(ctx, top, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", err
	}
	// Only the commit's own list of ignored files counts, because a build does
	// not ignore them.
	added, err := git(ctx, top, "ls-files", "--others", "--exclude-from=.gitignore")
	return changed + added, err
}

// otherRepository are variables that name another repository than the folder's.
// Git sets them for hooks and for commands of a rebase.
var otherRepository = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR",
	"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
}

// ofThisFolder leaves these variables out of an environment.
func ofThisFolder(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(otherRepository, name)
	})
}

// git runs git in a folder and returns its output.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...)
	cmd.Env = ofThisFolder(os.Environ())
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}
