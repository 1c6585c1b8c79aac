package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// byHandScript runs the guide's script three times: while it works, it starts
// itself once more in the same folder. Then its work fails. Then the store
// does not answer.
const byHandScript = `
exec sh -c 'umask 022; exec sh ./byhand.sh'
grep '^the result$' out.json
exec stat -c %a out.json
stdout '^644$'
exec stat -c %a daily.lease
stdout '^600$'
grep '^0$' second.code
cmp lease.before lease.after
exec croft show reports/daily --json
stdout '"state":"free"'
stdout '"terms":1'

env FAILS=1
exits 7 sh ./byhand.sh
exec croft history reports/daily
stdout failed

cp daily.lease lease.before
exits 14 env CROFT_STORE=redis://127.0.0.1:1/0 sh ./byhand.sh
cmp daily.lease lease.before

-- generate --
#!/bin/sh
[ -z "$FAILS" ] || exit 7
cp daily.lease lease.before
sh ./byhand.sh >&2
echo $? >second.code
cp daily.lease lease.after
echo the result
-- byhand.sh --
`

func TestTheScriptByHandOfTheGuideMayRunTwiceInOneFolder(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "for scripts that cannot be wrapped:\n\n```sh\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		t.Fatal("the guide has no script for work by hand")
	}
	dir := t.TempDir()
	script := "exec chmod +x generate\n" + byHandScript + block
	if err := os.WriteFile(filepath.Join(dir, "byhand.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := scripts(t, "", func(e *testscript.Env) { e.Setenv("CROFT_STORE", filepath.Join(e.WorkDir, "store")) })
	p.Dir = dir
	testscript.Run(t, p)
}
