// Package backends lists the backends of croft, one line each.
package backends

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	// Each of these registers its URL schemes.
	_ "github.com/croft-dev/croft/backend/dir"
	_ "github.com/croft-dev/croft/backend/etcd"
	_ "github.com/croft-dev/croft/backend/file"
	_ "github.com/croft-dev/croft/backend/gcs"
	_ "github.com/croft-dev/croft/backend/postgres"
	_ "github.com/croft-dev/croft/backend/redis"
	_ "github.com/croft-dev/croft/backend/s3"
	_ "github.com/croft-dev/croft/backend/sqlite"
)

// The Redis client logs every failed try. Croft reports a failure itself, once,
// when the outcome is known.
func init() { goredis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
