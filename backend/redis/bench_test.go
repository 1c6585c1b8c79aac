package redis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
)

// BenchmarkApply measures requests in batches of different sizes, and beside
// them the smallest script that takes and frees a key. client-µs and server-µs
// are the CPU time of each for one request. A busy machine distorts them less
// than elapsed time.
func BenchmarkApply(b *testing.B) {
	server := testenv.RedisAlone(b)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer client.Close()
	st := New(client, nil)
	take := goredis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	give := goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	take.Load(b.Context(), client)
	give.Load(b.Context(), client)
	b.Run("floor", func(b *testing.B) {
		cycle(b, server, 2, func(ctx context.Context) {
			keys, secret := []string{"floor"}, string(tenure.NewSecret())
			if err := take.EvalSha(ctx, client, keys, secret, 60000).Err(); err != nil {
				b.Fatal(err)
			}
			if err := give.EvalSha(ctx, client, keys, secret).Err(); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, size := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("acquire and release, %d", size), func(b *testing.B) {
			takes, ends := make([]tenure.Request, size), make([]tenure.Request, size)
			cycle(b, server, 2*size, func(ctx context.Context) {
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
			cycle(b, server, size, func(ctx context.Context) { apply(b, ctx, st, renewals) })
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

// cycle times rounds of so many requests, and reports the cost of each.
func cycle(b *testing.B, server *testenv.RedisServer, requests int, round func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for range 50 { // the history of the keys is full then
		round(ctx)
	}
	ours, theirs := cpu("self"), cpu(strconv.Itoa(server.Pid()))
	for b.Loop() {
		round(ctx)
	}
	n := float64(b.N * requests)
	b.ReportMetric(float64(cpu("self")-ours)/n/1000, "client-µs/request")
	b.ReportMetric(float64(cpu(strconv.Itoa(server.Pid()))-theirs)/n/1000, "server-µs/request")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/n, "µs/request")
}

// cpu returns the CPU time of a process in nanoseconds, or 0 if it cannot be
// seen.
func cpu(pid string) (sum int64) {
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		ran, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ran, 10, 64)
		sum += n
	}
	return sum
}
