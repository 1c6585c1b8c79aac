package chaos

import (
	"context"
	"errors"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/croft-dev/croft/backend/etcd"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// etcdResource is a key of etcd. site are the addresses of its members.
type etcdResource struct {
	client *clientv3.Client
	g      *etcd.Guard
	key    string
}

func openEtcdKey(_ context.Context, site, key string) (resource, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(site, ","), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	g, err := etcd.OpenGuard(client, "resource/"+key, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdResource{client: client, g: g, key: "resource/" + key}, nil
}

func (p *etcdResource) guard() guard.Guard { return p.g }

func (p *etcdResource) read(ctx context.Context) (string, error) {
	answer, err := p.client.Get(ctx, p.key)
	if err != nil || len(answer.Kvs) == 0 {
		return "", err
	}
	return string(answer.Kvs[0].Value), nil
}

func (p *etcdResource) puts(update string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpPut(p.key, update), clientv3.OpPut(p.log()+update, "")}
}

func (p *etcdResource) log() string { return "applied/" + p.key + "/" }

func (p *etcdResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	_, err := p.g.Do(ctx, stamp, p.puts(update)...)
	return err
}

func (p *etcdResource) bare(ctx context.Context, update string) error {
	_, err := p.client.Txn(ctx).Then(p.puts(update)...).Commit()
	return err
}

// applied lists each update as often as etcd's version counter says it was put.
func (p *etcdResource) applied(ctx context.Context) ([]string, bool, error) {
	answer, err := p.client.Get(
		ctx, p.log(), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend),
	)
	if err != nil {
		return nil, true, err
	}
	var updates []string
	for _, kv := range answer.Kvs {
		for range kv.Version {
			updates = append(updates, strings.TrimPrefix(string(kv.Key), p.log()))
		}
	}
	return updates, true, nil
}

func (p *etcdResource) close() { _ = p.client.Close() }
