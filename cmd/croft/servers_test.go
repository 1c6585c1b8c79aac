package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestPasswordScripts runs scripts on servers that ask for a password. No
// command that croft starts finds it in its environment.
func TestPasswordScripts(t *testing.T) {
	t.Parallel()
	const password = "hunter22"
	redis := func(t *testing.T, settings ...string) string {
		server := testenv.RedisAlone(t)
		for _, setting := range settings {
			if _, err := server.Ask(strings.Fields(setting)...); err != nil {
				t.Fatal(err)
			}
		}
		return server.Addr
	}
	for name, open := range map[string]func(*testing.T) (whole, bare string){
		"redis": func(t *testing.T) (string, string) {
			addr := redis(t, "CONFIG SET requirepass "+password)
			return "redis://:" + password + "@" + addr + "/0", "redis://" + addr + "/0"
		},
		"redis user": func(t *testing.T) (string, string) {
			addr := redis(t, "ACL SETUSER ann on >"+password+" allkeys allchannels allcommands", "ACL SETUSER default off")
			return "redis://ann:" + password + "@" + addr + "/0", "redis://ann@" + addr + "/0"
		},
		"postgres": func(t *testing.T) (string, string) {
			whole := testenv.Postgres(t).Login(t, password)
			return whole, strings.Replace(whole, ":"+password+"@", "@", 1)
		},
		"postgres query": func(t *testing.T) (string, string) {
			whole := testenv.Postgres(t).Login(t, password)
			bare := strings.Replace(whole, ":"+password+"@", "@", 1)
			return strings.Replace(bare, "?", "?password="+password+"&", 1), bare
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, bare := open(t)
			other, heard := standIn(t)
			t.Cleanup(func() {
				if text := heard(); text == "" || strings.Contains(text, password) {
					t.Errorf("another store hears %q; want commands, without the password of the first", text)
				}
			})
			folders := []string{"password"}
			if strings.HasPrefix(name, "postgres") {
				folders = append(folders, "password_work")
			}
			for _, folder := range folders {
				testscript.Run(t, scripts(t, folder, func(e *testscript.Env) {
					e.Setenv("CROFT_STORE", whole)
					e.Setenv("WHOLE", whole)
					e.Setenv("BARE", bare)
					e.Setenv("OTHER", "redis://"+other+"/0")
				}))
			}
		})
	}
}

// standIn is a server that answers every Redis command with an error, and keeps
// the commands.
func standIn(t *testing.T) (address string, heard func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	var text strings.Builder
	serve := func(conn net.Conn) {
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			mu.Lock()
			text.WriteString(lines.Text() + "\n")
			mu.Unlock()
			if strings.HasPrefix(lines.Text(), "*") { // a command begins
				_, _ = io.WriteString(conn, "-ERR not here\r\n")
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

// engines start a store each, beside the default one. They return the
// environment of a croft that uses it.
var engines = map[string]func(*testing.T) map[string]string{
	"redis": func(t *testing.T) map[string]string {
		url := testenv.RedisAlone(t).URL()
		// In a script, # would begin a comment.
		return map[string]string{"CROFT_STORE": url, "TARGET": url + "#report"}
	},
	"postgres": func(t *testing.T) map[string]string {
		return map[string]string{"CROFT_STORE": testenv.Postgres(t).Database(t)}
	},
	"s3": func(t *testing.T) map[string]string {
		server := testenv.S3Alone(t)
		return map[string]string{
			"CROFT_STORE": server.URL("/croft"), "TARGET": server.URL("/out/report.json"), "BUCKET": server.Bucket, "ENDPOINT": server.Endpoint,
			"AWS_ACCESS_KEY_ID": server.AccessKey, "AWS_SECRET_ACCESS_KEY": server.SecretKey, "AWS_EC2_METADATA_DISABLED": "true",
		}
	},
	"gcs": func(t *testing.T) map[string]string {
		server := testenv.GCSExact(t)
		bucket := server.Bucket(t)
		at := "?endpoint=" + server.Endpoint
		return map[string]string{"CROFT_STORE": "gs://" + bucket + "/croft" + at, "TARGET": "gs://" + bucket + "/out/report.json" + at, "BUCKET": bucket, "ENDPOINT": server.Endpoint}
	},
	"etcd": func(t *testing.T) map[string]string {
		url := testenv.Etcd(t).URL()
		return map[string]string{"CROFT_STORE": url, "TARGET": url + "#report"}
	},
	"sqlite": func(t *testing.T) map[string]string {
		url := "sqlite://" + testenv.Memory(t) + "/croft.db"
		return map[string]string{"CROFT_STORE": url, "TARGET": url + "#report"}
	},
}

// The same scripts run on every engine beside the default one. What users write
// against croft does not depend on the store.
func TestServerScripts(t *testing.T) {
	t.Parallel()
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := open(t)
			folders := []string{"servers", name}
			if name != "s3" && name != "gcs" { // these stores cannot notify
				folders = append(folders, "telling")
			}
			for _, folder := range folders {
				testscript.Run(t, scripts(t, folder, func(e *testscript.Env) {
					for name, value := range env {
						e.Setenv(name, value)
					}
				}))
			}
		})
	}
}
