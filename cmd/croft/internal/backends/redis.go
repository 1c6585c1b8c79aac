//go:build !croft_no_redis

package backends

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	_ "github.com/croft-dev/croft/backend/redis"
)

func init() { has("redis") }

// The Redis client logs every failed try. Croft reports a failure itself, once,
// when the outcome is known.
func init() { goredis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
