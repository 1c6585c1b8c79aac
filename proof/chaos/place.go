package chaos

import (
	"context"
	"embed"
	"path"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// place is the resource of one key: it holds the name of the last update.
type place interface {
	// guard decides whose writes count.
	guard() guard.Guard
	// read is what it holds, "" if nothing yet.
	read(ctx context.Context) (string, error)
	// write replaces that through the guard.
	write(ctx context.Context, stamp fence.Stamp, update string) error
	// bare replaces it past the guard, as everybody does who has none.
	bare(ctx context.Context, update string) error
	// applied lists all updates ever applied, in order, if the place can tell: it keeps that list in the same step as the update.
	applied(ctx context.Context) (updates []string, known bool, err error)
	close()
}

// opener opens the place of a key. site says where, as the ground that laid it out does.
type opener func(ctx context.Context, site, key string) (place, error)

//go:embed sql
var sqlFiles embed.FS

// statement is an SQL statement from its file, with arguments written as $1.
func statement(name string) string {
	text, err := sqlFiles.ReadFile(path.Join("sql", name+".sql"))
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(text))
}
