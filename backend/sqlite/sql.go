package sqlite

import (
	"embed"
	"path"
	"strings"

	"github.com/croft-dev/croft/internal/statements"
)

//go:embed migrations/*.sql queries/*.sql
var files embed.FS

// queries are the statements in the files of the folder queries, by name.
var queries = statements.MustLoad(files, "queries/*.sql")

// The statements of leases and guards, and those about the whole file.
var (
	sqlFile        = queries.Must("file")
	sqlWriter      = queries.Must("writer")
	sqlBegin       = queries.Must("begin")
	sqlCommit      = queries.Must("commit")
	sqlRollback    = queries.Must("rollback")
	sqlLoad        = queries.Must("load")
	sqlInsert      = queries.Must("insert")
	sqlUpdate      = queries.Must("update")
	sqlTouch       = queries.Must("touch")
	sqlDataVersion = queries.Must("data_version")
	sqlNoteActs    = queries.Must("note_acts")
	sqlTrimActs    = queries.Must("trim_acts")
	sqlLastAct     = queries.Must("last_act")
	sqlActs        = queries.Must("acts")
	sqlEmptyLog    = queries.Must("empty_log")
	sqlList        = queries.Must("list")
	sqlCount       = queries.Must("count")
	sqlLook        = queries.Must("look")
	sqlSweep       = queries.Must("sweep")
	sqlLast        = queries.Must("last")
	sqlContents    = queries.Must("contents")
	sqlPrepare     = queries.Must("prepare")
	sqlVersion     = queries.Must("version")
	sqlMigrated    = queries.Must("migrated")
	sqlFenceEnter  = queries.Must("fence_enter")
	sqlMark        = queries.Must("mark")
	sqlLock        = queries.Must("lock")
	sqlMove        = queries.Must("move")
	sqlRekey       = queries.Must("rekey")
	sqlRekeyed     = queries.Must("rekeyed")
)

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

// migrations returns all steps, in order.
func migrations() []migration {
	entries, err := files.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	var all []migration
	for i, e := range entries { // sorted by name, numbered from 001
		all = append(all, migration{
			version: i + 1,
			name:    strings.TrimSuffix(e.Name(), ".sql"),
			text:    text(path.Join("migrations", e.Name())),
		})
	}
	return all
}
