package sqlite

import (
	"embed"
	"path"
	"strings"
)

//go:embed migrations/*.sql queries/*.sql
var files embed.FS

// The statements, each in a file of its own.
var (
	sqlBegin    = query("begin")
	sqlCommit   = query("commit")
	sqlRollback = query("rollback")
	sqlLoad     = query("load")
	sqlInsert   = query("insert")
	sqlUpdate   = query("update")
	sqlList     = query("list")
	sqlCount    = query("count")
	sqlLook     = query("look")
	sqlSweep    = query("sweep")
	sqlLast     = query("last")
	sqlContents = query("contents")
	sqlPrepare  = query("prepare")
	sqlVersion  = query("version")
	sqlMigrated = query("migrated")
	sqlRekey    = query("rekey")
	sqlRekeyed  = query("rekeyed")
)

func query(name string) string { return text("queries/" + name + ".sql") }

func text(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSpace(string(data))
}

// migration is one step from one version of the tables to the next.
type migration struct {
	version    int
	name, text string
}

// migrations are all steps, in order.
func migrations() []migration {
	entries, err := files.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	var all []migration
	for i, e := range entries { // sorted by name, numbered from 001
		all = append(all, migration{version: i + 1, name: strings.TrimSuffix(e.Name(), ".sql"), text: text(path.Join("migrations", e.Name()))})
	}
	return all
}
