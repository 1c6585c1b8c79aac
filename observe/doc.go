// Package observe turns what happens in a client and at its guards into signals for people: Prometheus metrics, OpenTelemetry spans, log records.
//
//	metrics := observe.New(nil)
//	prometheus.MustRegister(metrics)
//	client, err := croft.Open(ctx, url, &croft.Options{Observe: metrics.Observe})
//	report := observe.Artifact(file, metrics.Write) // counts what the guard admits and refuses
//
// Labels are bounded: metrics are labelled with the namespace of a key, its first segment, never with the key. The table of names is in docs/metrics.md; alert rules and a
// dashboard that use them are beside this package.
package observe
