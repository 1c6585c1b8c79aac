package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// PostgresServer is a real PostgreSQL server on a loopback port, in a temporary
// folder. Its user is not root. It ends with the test binary, however that
// ends.
type PostgresServer struct {
	bin, dir string
	port     int
	as       []string // prefix of commands that run as the server's user
	log      string
	cleaner  io.Writer // tells the process that cleans up which server runs

	mu        sync.Mutex
	cmd       *exec.Cmd // nil while it is down
	exited    chan struct{}
	databases atomic.Int64
}

var sharedPostgres struct {
	sync.Mutex
	server *PostgresServer
	err    error
}

// Postgres returns the server that all tests of this binary share. The first
// test starts it. Each test needs a [PostgresServer.Database] of its own. If
// PostgreSQL is missing, the test is skipped, or fails with CI=true.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	withServers(tb)
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	if sharedPostgres.server == nil && sharedPostgres.err == nil {
		sharedPostgres.server, sharedPostgres.err = startPostgres()
	}
	if sharedPostgres.err != nil {
		noPostgres(tb, sharedPostgres.err)
	}
	return sharedPostgres.server
}

// NewPostgres starts a server for one test alone, which may kill it. extra are
// more settings, as "name=value".
func NewPostgres(tb testing.TB, extra ...string) *PostgresServer {
	tb.Helper()
	withServers(tb)
	s, err := startPostgres(extra...)
	if err != nil {
		noPostgres(tb, err)
	}
	tb.Cleanup(s.stop)
	return s
}

// Standby starts a server that follows s asynchronously and takes no changes.
// It waits until the standby has everything that s has.
func (s *PostgresServer) Standby(tb testing.TB) *PostgresServer {
	tb.Helper()
	standby, err := newPostgres(roomy(clusterRoom))
	if err == nil {
		args := []string{
			"-D", filepath.Join(standby.dir, "data"), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port),
			"-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync",
		}
		var out []byte
		if out, err = standby.command("pg_basebackup", args...).CombinedOutput(); err != nil {
			err = fmt.Errorf("pg_basebackup: %w: %s", err, out)
		} else {
			err = standby.start()
		}
	}
	if err != nil {
		noPostgres(tb, err)
	}
	tb.Cleanup(standby.stop)
	Eventually(tb, "the standby catches up", func() error {
		if s.Query(
			tb, "postgres",
			"SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn = pg_current_wal_lsn()",
		) != "1" {
			return errors.New("it lags")
		}
		return nil
	})
	return standby
}

// errNoServer matches errors of a server that is not installed and cannot be.
var errNoServer = errors.New("PostgreSQL is not installed")

func noPostgres(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errNoServer) {
		Missing(tb, "%v", err)
	}
	tb.Fatalf("testenv: %v", err)
}

// withServers skips the test with -short, which promises tests without servers.
func withServers(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("testenv: -short starts no servers, and this needs PostgreSQL")
	}
}

// URL returns the address of a database of the server.
func (s *PostgresServer) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Addr(), database)
}

// Addr returns the server's host and port.
func (s *PostgresServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Database makes an empty database and returns its URL.
func (s *PostgresServer) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	s.Query(tb, "postgres", "CREATE DATABASE "+name)
	return s.URL(name)
}

// logins keeps tests from changing pg_hba.conf at the same time.
var logins sync.Mutex

// Login makes an empty database and a user for it who needs a password. It
// returns a URL with both. Other users still need none.
func (s *PostgresServer) Login(tb testing.TB, password string) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	s.Query(tb, "postgres", "CREATE ROLE "+name+" LOGIN PASSWORD '"+password+"'")
	s.Query(tb, "postgres", "CREATE DATABASE "+name+" OWNER "+name)
	logins.Lock()
	defer logins.Unlock()
	file := filepath.Join(s.dir, "data", "pg_hba.conf")
	rules, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte("host all "+name+" all scram-sha-256\n"), rules...), 0o600)
	}
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	s.Query(tb, "postgres", "SELECT pg_reload_conf()")
	bare := strings.Replace(s.URL(name), "postgres@", name+"@", 1)
	Eventually(tb, "the server asks for the password", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if exec.CommandContext(
			ctx, filepath.Join(s.bin, "psql"), "-X", "-w", "-d", bare, "-c", "SELECT 1",
		).Run() == nil {
			return errors.New("it lets the user in without one")
		}
		return nil
	})
	return strings.Replace(bare, name+"@", name+":"+password+"@", 1)
}

// Query runs SQL as the superuser in a database, and returns psql's output.
func (s *PostgresServer) Query(tb testing.TB, database, sql string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	out, err := exec.CommandContext(
		ctx, filepath.Join(s.bin, "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d",
		s.URL(database), "-c", sql,
	).CombinedOutput()
	if err != nil {
		tb.Fatalf("testenv: psql: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Kill ends the server with SIGKILL, like a crash. After Start, all confirmed
// changes are still there.
func (s *PostgresServer) Kill(tb testing.TB) {
	tb.Helper()
	s.end(os.Kill)
}

// stop ends the server at once, but lets it free its shared memory. The shared
// memory of a killed server stays.
func (s *PostgresServer) stop() { s.end(abandon) }

func (s *PostgresServer) end(by os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(by)
	select {
	case <-s.exited:
	case <-time.After(Patience):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	s.cmd = nil
	_, _ = fmt.Fprintln(s.cleaner)
}

// Start starts a killed server again, on the same port and with the same data.
func (s *PostgresServer) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
}

// startPostgres makes a cluster and starts it. The cluster is in memory, unless
// it syncs to disk.
func startPostgres(extra ...string) (*PostgresServer, error) {
	within := roomy(clusterRoom)
	if slices.Contains(extra, "fsync=on") {
		within = ""
	}
	s, err := newPostgres(within)
	if err != nil {
		return nil, err
	}
	if err := s.init(extra); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// clusterRoom is how much memory the clusters of the tests of several packages
// may need at the same time.
const clusterRoom = 4 << 30

// newPostgres makes a folder for a server, in the folder within. It is removed
// when the test binary ends.
func newPostgres(within string) (*PostgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(within, "croft-postgres-")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{bin: bin, dir: dir, log: filepath.Join(dir, "server.log")}
	if err := s.guardDir(); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 { // the server refuses to run as root
		if err := s.asUser("postgres"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// init makes the cluster.
func (s *PostgresServer) init(extra []string) error {
	data := filepath.Join(s.dir, "data")
	if out, err := s.command(
		"initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8",
		"--locale=C",
	).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	conf := append([]string{
		"listen_addresses='127.0.0.1'", "unix_socket_directories=''", "max_connections=400", "shared_buffers=64MB",
		"fsync=off",                       // a killed server loses nothing by it; a power cut would
		"dynamic_shared_memory_type=mmap", // in the server's folder: elsewhere it outlives a killed server
		"timezone='UTC'",
	}, extra...)
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(conf, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// guardDir starts a process that cleans up after this one. When the pipe to it
// closes, it stops the server, frees the shared memory of a killed server, and
// removes the folder. The seventh line of postmaster.pid names that memory.
func (s *PostgresServer) guardDir() error {
	const script = `trap '' INT TERM
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
	kill -QUIT "$pid"
	for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break; sleep 0.3; done
	kill -KILL "$pid" 2>/dev/null
fi
{ for i in 1 2 3 4 5 6; do read -r line; done; read -r key id && ipcrm -m "$id"; } <"$1/data/postmaster.pid" 2>/dev/null
rm -rf -- "$1"`
	cmd := exec.Command("sh", "-c", script, "sh", s.dir)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	s.cleaner = pipe
	return cmd.Start()
}

func (s *PostgresServer) asUser(name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2, os.Chown(s.dir, uid, gid)); err != nil {
		return err
	}
	s.as = []string{"setpriv", "--reuid=" + name, "--regid=" + name, "--clear-groups"}
	return nil
}

// command returns a command that runs one of the server's programs as its user.
func (s *PostgresServer) command(name string, args ...string) *exec.Cmd {
	argv := append(slices.Clone(s.as), append([]string{filepath.Join(s.bin, name)}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.dir
	return cmd
}

// start runs the server until it answers. It tries more than once: another
// process may take the port first, and the remains of a killed server take a
// moment to end.
func (s *PostgresServer) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return errors.New("the server is already running")
	}
	fresh := s.port == 0
	var err error
	for giveUp := time.Now().Add(Patience); err == nil || time.Now().Before(giveUp); {
		if fresh {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if err = s.tryStart(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	text, _ := os.ReadFile(s.log)
	return fmt.Errorf("PostgreSQL does not start: %w; the end of its log:\n%s", err, tail(text, 2000))
}

func (s *PostgresServer) tryStart() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command("postgres", "-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(s.cleaner, cmd.Process.Pid)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	for giveUp := time.Now().Add(Patience); time.Now().Before(giveUp); {
		select {
		case <-exited:
			_, _ = fmt.Fprintln(s.cleaner)
			return errors.New("it ended at once")
		default:
		}
		if s.ready(cmd.Process.Pid) {
			s.cmd, s.exited = cmd, exited
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	<-exited
	_, _ = fmt.Fprintln(s.cleaner)
	return errors.New("it did not answer within a minute")
}

// ready reports whether the process pid is a server that takes connections. It
// reads that from the server's folder, because another server may answer on the
// port. The file may be missing at first, or be from a killed server.
func (s *PostgresServer) ready(pid int) bool {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby"
}

// postgresBin returns the folder of the newest installed server, and installs
// one where that is possible.
func postgresBin() (string, error) {
	find := func() string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		version := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			return n
		}
		slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
		if path, err := exec.LookPath("postgres"); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				found = append(found, path)
			}
		}
		for _, path := range found {
			dir := filepath.Dir(path)
			missing := slices.ContainsFunc([]string{"initdb", "psql", "pg_basebackup"}, func(name string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				return err != nil
			})
			if !missing {
				return dir
			}
		}
		return ""
	}
	if bin := find(); bin != "" {
		return bin, nil
	}
	const advice = "install it (Debian: apt-get install postgresql) to run these tests"
	if err := install("postgresql"); err != nil {
		return "", fmt.Errorf("%w and cannot be (%w); %s", errNoServer, err, advice)
	}
	if bin := find(); bin != "" {
		return bin, nil
	}
	return "", fmt.Errorf("%w, not even by its package; %s", errNoServer, advice)
}
