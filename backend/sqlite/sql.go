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
	sqlFile        = statementText("file")
	sqlWriter      = statementText("writer")
	sqlBegin       = statementText("begin")
	sqlCommit      = statementText("commit")
	sqlRollback    = statementText("rollback")
	sqlLoad        = statementText("load")
	sqlInsert      = statementText("insert")
	sqlUpdate      = statementText("update")
	sqlTouch       = statementText("touch")
	sqlDataVersion = statementText("data_version")
	sqlNoteActs    = statementText("note_acts")
	sqlTrimActs    = statementText("trim_acts")
	sqlLastAct     = statementText("last_act")
	sqlActs        = statementText("acts")
	sqlEmptyLog    = statementText("empty_log")
	sqlList        = statementText("list")
	sqlCount       = statementText("count")
	sqlLook        = statementText("look")
	sqlSweep       = statementText("sweep")
	sqlLast        = statementText("last")
	sqlContents    = statementText("contents")
	sqlPrepare     = statementText("prepare")
	sqlVersion     = statementText("version")
	sqlMigrated    = statementText("migrated")
	sqlRekey       = statementText("rekey")
	sqlRekeyed     = statementText("rekeyed")
)

func statementText(name string) string { return text("queries/" + name + ".sql") }

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
