// Package observe turns the events of clients, guards and gates into Prometheus
// metrics, OpenTelemetry spans and log records.
//
//	metrics := observe.New(nil)
//	prometheus.MustRegister(metrics)
//	client, err := croft.Open(ctx, url, &croft.Options{
//		Observe: metrics.Observe,
//	})
//	// This counts the writes that the guard admits and refuses.
//	report := observe.Artifact(file, metrics.Write)
//
// Labels are bounded. A metric is labelled with the namespace of a key, its
// first segment, never with the key. The table of names is in docs/metrics.md.
// Alert rules and a dashboard that use them are beside this package.
//
// Events come from many goroutines, and their order is not certain: the loss of
// a lease may be told before its beginning. [Metrics] and [Traces] each have
// one short mutex for the leases that they know. The package starts no
// goroutines.
package observe
