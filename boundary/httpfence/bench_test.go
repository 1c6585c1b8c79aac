package httpfence

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkOverhead compares a write through the proxy with one straight to the
// service, in turn: the ratio counts. "new" makes a new connection for every
// write straight to the service, as the proxy does. "kept" keeps its
// connection. A numbered write raises the mark every time. Other writes only
// read it.
func BenchmarkOverhead(b *testing.B) {
	for _, marks := range []string{"memory", "files"} {
		for _, numbering := range []bool{false, true} {
			b.Run(fmt.Sprintf("marks=%s/numbered=%v", marks, numbering), func(b *testing.B) {
				w := newWorld()
				upstream := httptest.NewServer(http.HandlerFunc(echo))
				defer upstream.Close()
				_, front := w.proxyTo(b, "one", upstream.URL, func(o *ProxyOptions) {
					if marks == "files" {
						marks, err := MarksAt(filepath.Join(b.TempDir(), "{resource}"))
						if err != nil {
							b.Fatal(err)
						}
						o.Marks = marks
					}
				})
				kept := &http.Client{Transport: &http.Transport{}}
				fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				defer kept.CloseIdleConnections()
				seq := uint64(0)
				write := func(c *http.Client, target string) time.Duration {
					req, err := http.NewRequest(http.MethodPut, target+"/r/1", http.NoBody)
					if err != nil {
						b.Fatal(err)
					}
					stamp := newer
					if numbering {
						seq++
						stamp.Seq = seq
					}
					SetStamp(req.Header, stamp)
					start := time.Now()
					resp, err := c.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						b.Fatal(resp.Status)
					}
					return time.Since(start)
				}
				write(kept, front.URL) // takes the lease
				var direct, anew, proxied time.Duration
				for b.Loop() {
					direct += write(kept, upstream.URL)
					anew += write(fresh, upstream.URL)
					proxied += write(kept, front.URL)
				}
				b.ReportMetric(float64(proxied.Microseconds())/float64(b.N), "proxied-µs/op")
				b.ReportMetric(float64(proxied)/float64(direct), "ratio-to-kept")
				b.ReportMetric(float64(proxied)/float64(anew), "ratio-to-new")
			})
		}
	}
}
