package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/tenure"
)

// BenchmarkApply is what requests cost in batches of different sizes; server-µs is the server's share of one.
func BenchmarkApply(b *testing.B) {
	server := testenv.RedisAlone(b)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer client.Close()
	st := New(client, nil)
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("acquire and release, %d", size), func(b *testing.B) {
			takes, ends := make([]tenure.Request, size), make([]tenure.Request, size)
			cycle(b, client, 2*size, func(ctx context.Context) {
				for i := range takes {
					takes[i] = claim(fmt.Sprintf("bench/%d", i), "ann")
					ends[i] = then(tenure.Release, takes[i])
				}
				apply(b, ctx, st, takes)
				apply(b, ctx, st, ends)
			})
		})
		b.Run(fmt.Sprintf("renew, %d", size), func(b *testing.B) {
			takes, renewals := make([]tenure.Request, size), make([]tenure.Request, size)
			for i := range takes {
				takes[i] = claim(fmt.Sprintf("renew-%d-%d/%d", size, b.N, i), "ann")
				renewals[i] = then(tenure.Renew, takes[i])
			}
			apply(b, b.Context(), st, takes)
			cycle(b, client, size, func(ctx context.Context) { apply(b, ctx, st, renewals) })
		})
	}
}

func apply(b *testing.B, ctx context.Context, st *Store, requests []tenure.Request) {
	for _, a := range st.Apply(ctx, requests) {
		if a.Err != nil {
			b.Fatal(a.Err)
		}
	}
}

// cycle times rounds of so many requests, and reports what each cost.
func cycle(b *testing.B, client *goredis.Client, requests int, round func(ctx context.Context)) {
	ctx := b.Context()
	round(ctx)
	client.ConfigResetStat(ctx)
	for b.Loop() {
		round(ctx)
	}
	info := client.Info(ctx, "commandstats").Val()
	for line := range strings.Lines(info) {
		var calls, micros float64
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f", &calls, &micros); err == nil {
			b.ReportMetric(micros/float64(b.N*requests), "server-µs/request")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*requests), "µs/request")
}
