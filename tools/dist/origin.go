package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// origin says which source a build is made from. The binary, the archives and
// the packages name it.
type origin struct {
	version string
	commit  string    // "" if it is not known
	date    time.Time // of the commit, not of the build
}

// undated is the date if none is known. Zip knows no time before 1980.
var undated = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// findOrigin reads the origin of the source in a folder. It checks a version
// that the user gives against the tag. Without one, the version is the tag of
// the commit. Files that differ from a tag, or have none, become a development
// version.
func findOrigin(ctx context.Context, top, version string) (origin, error) {
	if version != "" && !versions.MatchString(version) {
		return origin{}, fmt.Errorf("%q is not a version; give one such as v1.2.3, or none", version)
	}
	if _, err := os.Stat(filepath.Join(top, ".git")); errors.Is(err, os.ErrNotExist) {
		return originOfArchive(top, version)
	}
	if version != "" {
		if err := checkSource(ctx, top, version); err != nil {
			return origin{}, err
		}
	}
	said, err := git(ctx, top, "show", "--no-patch", "--no-show-signature", "--format=%H %ct", "HEAD")
	if err != nil {
		return origin{}, err
	}
	o, err := readCommit(said)
	if err != nil {
		return origin{}, err
	}
	if o.version = version; version != "" {
		return o, nil
	}
	changed, err := changes(ctx, top)
	if err != nil {
		return origin{}, err
	}
	tags, err := git(ctx, top, "tag", "--points-at", "HEAD", "--sort=-version:refname")
	if err != nil {
		return origin{}, err
	}
	for _, tag := range strings.Fields(tags) {
		if changed == "" && versions.MatchString(tag) {
			o.version = tag
			return o, nil
		}
	}
	o.version, err = developmentVersion(top, o.commit)
	if changed != "" {
		o.version += ".changed"
	}
	return o, err
}

// originOfArchive reads the origin of an unpacked source archive, in which git
// has replaced the content of commit.txt. It trusts the version of its user.
func originOfArchive(top, version string) (origin, error) {
	text, err := os.ReadFile(filepath.Join(top, "tools", "dist", "commit.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return origin{}, err
	}
	o := origin{date: undated}
	if text := string(text); text != "" && !strings.HasPrefix(text, "$") {
		if o, err = readCommit(text); err != nil {
			return origin{}, err
		}
	}
	if o.version = version; version != "" {
		return o, nil
	}
	o.version, err = developmentVersion(top, o.commit)
	return o, err
}

// commits are the words that git writes about a commit: its hash and its date
// in seconds since 1970.
var commits = regexp.MustCompile(`^([0-9a-f]{40,64}) (\d{1,11})\s*$`)

func readCommit(text string) (origin, error) {
	m := commits.FindStringSubmatch(text)
	if m == nil {
		return origin{}, fmt.Errorf("git names the commit %q; want its hash and its date", text)
	}
	seconds, err := strconv.ParseInt(m[2], 10, 64)
	return origin{commit: m[1], date: time.Unix(seconds, 0).UTC()}, err
}

// next finds the version that the modules require of each other. It is the
// version that comes next.
var next = regexp.MustCompile(`(?m)^\s*(?:require )?github\.com/croft-dev/croft (v\d+\.\d+\.\d+)`)

// developmentVersion names a build that is no release, such as
// v1.2.3-dev+0123456789ab.
func developmentVersion(top, commit string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, "cmd", "croft", "go.mod"))
	if err != nil {
		return "", err
	}
	m := next.FindSubmatch(text)
	if m == nil {
		return "", errors.New("cmd/croft/go.mod does not say which version comes next; run tools/tidy")
	}
	if commit == "" {
		commit = "unknown"
	}
	return fmt.Sprintf("%s-dev+%.12s", m[1], commit), nil
}
