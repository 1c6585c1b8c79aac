package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/testenv"
)

// The same scripts on every engine beside the default one: what users script against does not depend on where leases are kept.
func TestServerScripts(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) map[string]string{
		"redis": func(t *testing.T) map[string]string {
			url := testenv.RedisAlone(t).URL()
			return map[string]string{"CROFT_STORE": url, "TARGET": url + "#report"} // a script would take # for a comment
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
			url := "sqlite://" + t.TempDir() + "/croft.db"
			return map[string]string{"CROFT_STORE": url, "TARGET": url + "#report"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := open(t)
			for _, folder := range []string{"servers", name} {
				testscript.Run(t, scripts(folder, func(e *testscript.Env) {
					for name, value := range env {
						e.Setenv(name, value)
					}
				}))
			}
		})
	}
}
