package chaos

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/backend/redis"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// redisResource is a value. site is the address of its server.
type redisResource struct {
	client *goredis.Client
	g      *redis.Guard
	key    string
}

func openValue(_ context.Context, site, key string) (resource, error) {
	client := goredis.NewClient(&goredis.Options{Addr: site, ContextTimeoutEnabled: true, MaxRetries: -1})
	g, err := redis.OpenGuard(client, "{"+key+"}", nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &redisResource{client: client, g: g, key: "{" + key + "}"}, nil
}

func (p *redisResource) guard() guard.Guard { return p.g }

func (p *redisResource) read(ctx context.Context) (string, error) {
	holds, err := p.client.Get(ctx, p.key).Result()
	if errors.Is(err, goredis.Nil) {
		return "", nil
	}
	return holds, err
}

func (p *redisResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	_, err := p.g.Do(ctx, stamp, redis.Command{"SET", p.key, update}, redis.Command{
		"RPUSH", p.key + ":applied", update,
	})
	return err
}

func (p *redisResource) bare(ctx context.Context, update string) error {
	_, err := p.client.TxPipelined(ctx, func(tx goredis.Pipeliner) error {
		tx.Set(ctx, p.key, update, 0)
		tx.RPush(ctx, p.key+":applied", update)
		return nil
	})
	return err
}

func (p *redisResource) applied(ctx context.Context) ([]string, bool, error) {
	updates, err := p.client.LRange(ctx, p.key+":applied", 0, -1).Result()
	return updates, true, err
}

func (p *redisResource) close() { _ = p.client.Close() }
