package hostile

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/dir"
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/tenure"
)

// attacker is a host that records everything sent to it.
type attacker struct {
	addr string
	mu   sync.Mutex
	got  []string
}

func newAttacker(t *testing.T) *attacker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a := &attacker{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.note("a connection")
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				buf := make([]byte, 4096)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					a.note(string(buf[:n]))
				}
			}()
		}
	}()
	return a
}

func (a *attacker) note(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, text)
}

// nothing checks that nothing was sent to the host and nothing was made in a
// folder.
func (a *attacker) nothing(t *testing.T, away string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.got) > 0 {
		t.Errorf("the attacker's host received %q", a.got)
	}
	if made, err := os.ReadDir(away); err != nil || len(made) > 0 {
		t.Errorf("made where somebody else says: %v, %v", made, err)
	}
}

// hostileTargets are guards of every kind, at the attacker's host and in a
// folder.
func hostileTargets(evil *attacker, away string) []string {
	return []string{
		"gs://bucket/object?endpoint=http://" + evil.addr,
		"gs://bucket/object?endpoint=https://" + evil.addr,
		"s3://bucket/key?endpoint=http://" + evil.addr + "&region=eu-west-1",
		"postgres://" + evil.addr + "/db?sslmode=disable#row",
		"redis://" + evil.addr + "/0#key",
		"etcd://" + evil.addr + "/#key",
		"sqlite://" + filepath.Join(away, "made.db") + "#row",
		filepath.Join(away, "made.txt"),
		"file://" + filepath.Join(away, "made.json"),
	}
}

// asOperator runs croft with credentials of every kind.
func asOperator(t *testing.T, bin string, args ...string) (code int, out string) {
	t.Helper()
	return asOperatorIn(t, t.TempDir(), bin, args...)
}

// asOperatorIn is asOperator in a folder.
func asOperatorIn(t *testing.T, folder, bin string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	home := t.TempDir()
	key := filepath.Join(home, "key.json")
	if err := os.WriteFile(key, []byte(`{"type":"authorized_user","client_id":"x","client_secret":"hunter2","refresh_token":"hunter2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "HOME="+home, "PGPASSWORD=hunter2", "PGUSER=ops", "AWS_ACCESS_KEY_ID=ops", "AWS_SECRET_ACCESS_KEY=hunter2",
		"AWS_EC2_METADATA_DISABLED=true", "GOOGLE_APPLICATION_CREDENTIALS="+key)
	printed, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(printed)
}

// A holder names its own host in the record of a shared store. An operator with
// credentials of every kind ends its lease. Nothing may reach the host, and no
// file may be made.
func TestAnOperatorSendsNothingWhereARecordSays(t *testing.T) {
	t.Parallel()
	bin := built(t)
	evil, shared, away := newAttacker(t), t.TempDir(), t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	st, err := dir.Open(shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	targets := hostileTargets(evil, away)
	planted := func(key string) tenure.Request {
		req := tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "mallory", TTL: time.Hour, Guards: targets}
		if a := st.Apply(t.Context(), []tenure.Request{req})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		return req
	}
	taken := func(act, key string) {
		t.Helper()
		if rec, err := st.Get(t.Context(), key); err != nil || rec.Owner == "mallory" {
			t.Errorf("%s: %s holds the key, %v", act, rec.Owner, err)
		}
	}
	for act, args := range map[string][]string{"takeover": nil, "takeover for bob": {"--to", "bob"}, "revoke": nil} {
		key := "jobs/" + strings.ReplaceAll(act, " ", "-")
		planted(key)
		command, _, _ := strings.Cut(act, " ")
		args = append([]string{command, key, "--note", "the host is down", "--store", shared}, args...)
		code, out := asOperator(t, bin, args...)
		if code != 1 {
			t.Errorf("%s: exit code %d, want 1, because no fence is up:\n%s", act, code, out)
		}
		if n := strings.Count(out, "fence NOT raised"); n != len(targets) {
			t.Errorf("%s tells of %d targets, want %d:\n%s", act, n, len(targets), out)
		}
		taken(act, key)
	}
	// A lease that looks like that of a proxy which has closed a resource. The
	// leases of proxies name no guards.
	key := httpfence.DefaultLeasePrefix + "orders/1"
	closed := tenure.Request{Verb: tenure.Report, Key: key, Secret: planted(key).Secret, Progress: "closed until an operator opens it: "}
	if a := st.Apply(t.Context(), []tenure.Request{closed})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	if code, out := asOperator(t, bin, "proxy", "open", "orders/1", "--note", "the service was restarted", "--store", shared); code != 0 {
		t.Errorf("proxy open: exit code %d:\n%s", code, out)
	}
	taken("proxy open", key)
	evil.nothing(t, away)
}
