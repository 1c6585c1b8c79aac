// Command bench measures Croft beside the bare operations it is made of, and
// beside other libraries for the same task.
//
// Machines are noisy. So contenders alternate within one run, and only the
// ratio of their medians counts, never a time alone.
//
// Workloads run one after the other, on the main goroutine. A contender's
// workers are goroutines, which all end before the next contender's turn. The
// clients of all contenders stay open for the whole workload.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"testing"
	"time"
)

// workload is one comparison or report.
type workload struct {
	name, title, what string
	run               func(ctx context.Context, b *bench) error
}

// workloads lists all workloads. To add one, write a file and add a line here.
var workloads = []workload{
	{
		"redis-lone", "Redis: one acquire and release",
		"One goroutine acquires and releases a key that nobody else wants.",
		onRedis(redisRivals, loneWithin(1.25)),
	},
	{
		"redis-crowd", "Redis: 64 goroutines, distinct keys",
		"Each goroutine acquires and releases a key of its own, again and again. All\n" +
			"share a client.",
		onRedis(redisRivals, crowdAtLeast(1.5, 0)),
	},
	{"redis-handoff-16", "Redis: hand-off among 16 waiters", handoffWhat, onRedis(redisWaiters, handoffAmong(16))},
	{"redis-handoff-2", "Redis: hand-off between two", handoffWhat, onRedis(redisWaiters, handoffAmong(2))},
	{"redis-held", "Redis: keeping 5,000 leases", heldWhat, onRedis(redisHolders, heldByMany)},
	{
		"python", "Python: from lease() to granted",
		"A program acquires a key that nobody else wants. The release is not measured.",
		benchPython,
	},
	{
		"postgres-lone", "PostgreSQL: one acquire and release",
		"One goroutine acquires and releases a key that nobody else wants.",
		onPostgres(postgresRivals, loneWithin(1.25)),
	},
	{
		"postgres-crowd", "PostgreSQL: 64 goroutines, distinct keys",
		"Each goroutine acquires and releases a key of its own, again and again. The\n" +
			"floor and the peers have a connection for each goroutine.",
		onPostgres(postgresRivals, crowdAtLeast(1, 0.5)),
	},
	{
		"postgres-handoff-16", "PostgreSQL: hand-off among 16 waiters",
		handoffWhat, onPostgres(postgresWaiters, handoffAmong(16)),
	},
	{
		"postgres-handoff-2", "PostgreSQL: hand-off between two",
		handoffWhat, onPostgres(postgresWaiters, handoffAmong(2)),
	},
	{"postgres-held", "PostgreSQL: keeping 5,000 leases", heldWhat, onPostgres(postgresHolders, heldByMany)},
	{
		"etcd-lone", "etcd: one acquire and release",
		"One goroutine acquires and releases a key that nobody else wants.",
		onEtcd(etcdRivals, loneWithin(1.25)),
	},
	{
		"etcd-crowd", "etcd: 64 goroutines, distinct keys",
		"Each goroutine acquires and releases a key of its own, again and again. All\n" +
			"share a client.",
		onEtcd(etcdRivals, crowdAtLeast(1.5, 0)),
	},
	{"etcd-handoff-16", "etcd: hand-off among 16 waiters", handoffWhat, onEtcd(etcdWaiters, handoffAmong(16))},
	{"etcd-handoff-2", "etcd: hand-off between two", handoffWhat, onEtcd(etcdWaiters, handoffAmong(2))},
	{"etcd-held", "etcd: keeping 5,000 leases", heldWhat, onEtcd(etcdHolders, heldByMany)},
	{
		"sqlite-lone", "SQLite: one acquire and release",
		"One goroutine acquires and releases a key that nobody else wants. The floor is\n" +
			"two bare commits of the same durability.",
		onSQLite(sqliteRivals, loneWithin(1.3)),
	},
	{
		"sqlite-crowd", "SQLite: 64 goroutines, distinct keys",
		"Each goroutine acquires and releases a key of its own, again and again. The\n" +
			"floor is one commit for each operation.",
		onSQLite(sqliteRivals, crowdAtLeast(8, 0)),
	},
	{"sqlite-handoff-16", "SQLite: hand-off among 16 waiters", handoffWhat, onSQLite(sqliteWaiters, handoffAmong(16))},
	{
		"server-lone", "Through a server: one acquire and release",
		"One goroutine acquires and releases a key that nobody else wants, through croft\n" +
			"serve. The floor is Croft on the same kind of store, a SQLite file, without a\n" +
			"server. The last line is two calls of Go's HTTP client and server with bodies as\n" +
			"long, and nothing behind them.",
		onSQLite(serverRivals, loneWithin(1.5)),
	},
	{
		"postgres-work", "PostgreSQL: items that do nothing",
		"The program adds 5,000 items, then works on 500 at once. An item counts when its\n" +
			"completion is confirmed.",
		benchWork,
	},
	{
		"postgres-claims", "PostgreSQL: claims beside finished items",
		"The program claims one item, then completes it, again and again.",
		benchClaims,
	},
	{
		"postgres-dispatch", "PostgreSQL: effects delivered to a local receiver",
		"The program completes 5,000 items with an effect each. Then dispatchers deliver\n" +
			"them by webhooks to a receiver in the same process. Busy workers add and do\n" +
			"items without effects in the same ledger meanwhile, as fast as they can.",
		benchDispatch,
	},
	{
		"sqlite-work", "SQLite: items that do nothing",
		"The program adds 2,000 items, then works on 500 at once. An item counts when its\n" +
			"completion is confirmed.",
		benchWorkSQLite,
	},
	{
		"dir", "Directory: one acquire and release",
		"A grant creates, writes and syncs one file, makes one link, and syncs one\n" +
			"folder. So does a release.",
		benchDir,
	},
	{
		"combine", "Directory: 64 goroutines, distinct keys",
		"The client combines the calls of the goroutines, and the disk combines their\n" +
			"syncs.",
		benchCombine,
	},
	{"held", "Directory: keeping 10,000 leases", "One client holds them all.", benchHeld},
	{
		"told", "A takeover reaches the holder",
		"The time from the beginning of a takeover to the end of the holder's context, in\n" +
			"another client. The holder's next renewal would be due 20 s after the grant.",
		benchTold,
	},
	{
		"current", "A proxy that knows the current owner",
		"100 owners write in turn through a proxy, each to a resource of its own: beside a proxy that asks " +
			"only its marks.",
		benchCurrent,
	},
	{
		"mcp", "A tool call through croft mcp",
		"A client calls a tool of a server that does nothing, over standard input and\n" +
			"output, straight and through croft mcp, in turn.",
		benchMCP,
	},
	{"run", "croft run", "A command under a lease in a directory store, beside the same command alone.", benchRun},
}

const (
	handoffWhat = "The time from the beginning of a release to the return of the next acquire, by\n" +
		"another worker. Each worker holds the key for 2 ms. Peers ask again as they do\n" +
		"by default. The figures are from all hand-offs of three rounds."
	heldWhat = "Each lease has a TTL of 10 s, and is renewed every third of it. If a library\n" +
		"leaves renewing to its user, a goroutine for each lock does it. Measured\n" +
		"for 15 s."
)

func main() {
	b := &bench{out: os.Stdout, patience: 5 * time.Second}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	pick := flags.String("run", "", "only the workloads whose name matches this expression")
	flags.IntVar(&b.rounds, "rounds", 7, "rounds of each contender")
	flags.StringVar(&b.dir, "dir", "", "folder to work in, on the disk to be measured (default: a temporary one)")
	flags.IntVar(&b.leases, "leases", 10000, "held leases in the held workload")
	flags.DurationVar(&b.span, "span", 250*time.Millisecond, "length of a round on servers")
	flags.IntVar(&b.passes, "passes", 150, "hand-offs in a round, at most")
	flags.DurationVar(&b.passFor, "pass-for", 2*time.Second, "longest round of hand-offs")
	flags.IntVar(&b.kept, "kept", 5000, "held leases on servers")
	flags.DurationVar(&b.keepFor, "keep-for", 15*time.Second, "how long they are held")
	asJSON := flags.String("json", "", "write all that was found to this file")
	page := flags.String("write", "", "write the page for people to this file, and its charts beside it")
	redraw := flags.String("draw", "", "measure nothing: draw the charts of this page again, and end")
	profile := flags.String("cpuprofile", "", "write a profile of this program to this file")
	scale := flags.String("scale", "", "measure what one more lease, waiter or client costs, for this page")
	list := flags.Bool("list", false, "list the workloads and end")
	_ = flags.Parse(os.Args[1:]) // ends the program on an error
	if *list {
		for _, w := range append(workloads, scaleWorkloads...) {
			fmt.Printf("%-20s %s\n", w.name, w.title)
		}
		return
	}
	if *redraw != "" {
		if err := drawCharts(*redraw); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	// The servers come from the tests' environment, which asks for -test.short.
	testing.Init()
	_ = flag.CommandLine.Parse(nil)
	var err error
	if *scale != "" {
		err = b.scale(*scale, *asJSON)
	} else {
		err = b.write(*pick, *asJSON, *page, *profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// write runs the matching workloads, and writes the files that were asked for.
func (b *bench) write(pick, asJSON, page, profile string) error {
	if page != "" && pick != "" {
		b.printf("%s stays as it is: the page is of a whole run, and -run picks some workloads\n", page)
		page = ""
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if err := b.all(workloads, pick); err != nil {
		return err
	}
	if asJSON != "" {
		if err := b.report.writeJSON(asJSON); err != nil {
			return err
		}
	}
	if page != "" {
		return b.report.writePage(page)
	}
	return nil
}

// scale measures what one more lease, waiter or client costs.
func (b *bench) scale(page, asJSON string) error {
	if err := b.all(scaleWorkloads, ""); err != nil {
		return err
	}
	if asJSON != "" {
		if err := b.report.writeJSON(asJSON); err != nil {
			return err
		}
	}
	return b.report.writeFigures(page)
}

// all runs the matching ones of these workloads.
func (b *bench) all(of []workload, pick string) error {
	match, err := regexp.Compile(pick)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one is needed", b.rounds)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "croft-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b.dir = dir
	}
	defer b.end()
	b.load = loadAverage()
	ran := 0
	for _, w := range of {
		if !match.MatchString(w.name) {
			continue
		}
		ran++
		b.title = w
		b.printf("\n%s: %s\n", w.name, w.title)
		if err := w.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no workload matches %q; -list shows them", pick)
	}
	b.describe()
	return nil
}
