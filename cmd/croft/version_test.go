package main

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionTellsCommitAndDateOfEveryKindOfBuild(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
		{Key: "vcs.time", Value: "2026-01-31T08:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a clone": {
			debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs},
			"croft development (commit 0123456789ab, 2026-01-31T08:00:00Z, with changes)",
		},
		"go install of a commit": {
			debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20260131080000-0123456789ab"}},
			"croft v1.2.4-0.20260131080000-0123456789ab (commit 0123456789ab, 2026-01-31T08:00:00Z)",
		},
		"go install of a version": {
			debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "croft v1.2.3 (commit not recorded)",
		},
	} {
		if got := builtFrom(&c.info, true).line(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestReleaseBuildsSetVersionCommitAndDate changes what the linker sets.
func TestReleaseBuildsSetVersionCommitAndDate(t *testing.T) {
	defer func(v, c, d string) { version, commit, date = v, c, d }(version, commit, date)
	version, commit, date = "v1.2.3", "fedcba98765432100000", "2026-02-01T00:00:00Z"
	want := "croft v1.2.3 (commit fedcba987654, 2026-02-01T00:00:00Z)"
	if got := builtFrom(nil, false).line(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
