package chaos

import (
	"context"
	"embed"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/statements"
)

// resource is the guarded data of one key. Its content is the name of the last
// update.
type resource interface {
	// guard returns the guard that admits or refuses writes.
	guard() guard.Guard
	// read returns the content, "" if there was no write yet.
	read(ctx context.Context) (string, error)
	// write replaces the content through the guard.
	write(ctx context.Context, stamp fence.Stamp, update string) error
	// bare replaces the content past the guard, as programs without guards do.
	bare(ctx context.Context, update string) error
	// applied lists all updates ever applied, in order. known is false if the
	// resource keeps no such list. A resource that does writes it together with
	// the update.
	applied(ctx context.Context) (updates []string, known bool, err error)
	close()
}

// opener opens the resource of a key. site is the string that testbed.urls
// made.
type opener func(ctx context.Context, site, key string) (resource, error)

//go:embed resource.sql
var files embed.FS

// queries are the SQL statements, by name. Arguments are written as $1.
var queries = statements.MustLoad(files, "*.sql")
