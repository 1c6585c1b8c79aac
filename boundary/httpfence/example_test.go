package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/guard/guardtest"
)

// put writes through a client whose transport adds the stamp of a lease.
func put(client *http.Client, target, body string) error {
	req, err := http.NewRequest(http.MethodPut, target, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return httpfence.RefusalIn(resp)
}

// outcome shortens a refusal to its status and code.
func outcome(err error) string {
	var refused *httpfence.ProblemError
	if errors.As(err, &refused) {
		return fmt.Sprint(refused.Status, " ", refused.Code)
	}
	return fmt.Sprint(err)
}

// The service cannot check stamps, and nobody can change it. The proxy in front
// of it refuses a worker that was replaced.
func ExampleProxy() {
	ctx := context.Background()
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("the service sees", r.Method, r.URL.Path)
	}))
	defer service.Close()

	client := croft.New(mem.New(nil), &croft.Options{Owner: "example"})
	defer client.Close()
	rule, err := httpfence.ParseRule("/orders/{id}")
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := url.Parse(service.URL)
	if err != nil {
		log.Fatal(err)
	}
	var mark guardtest.Memory // in earnest: httpfence.MarksAt("redis://host/0#proxy:{resource}")
	proxy, err := httpfence.NewProxy(upstream, httpfence.ProxyOptions{Options: httpfence.Options{
		Rules:  []httpfence.Rule{rule},
		Marks:  func(context.Context, string) (croft.Guard, error) { return &mark, nil },
		Client: client,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close(ctx)
	front := httptest.NewServer(proxy)
	defer front.Close()

	// A worker holds the job and writes. Then it is presumed dead and replaced.
	// Its own client would now send nothing; this one only knows the stamp.
	lease, err := client.Acquire(ctx, "jobs/orders", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	worker := &http.Client{Transport: &httpfence.Transport{Source: httpfence.Fixed(lease.Stamp())}}
	fmt.Println("the worker:", put(worker, front.URL+"/orders/42", "paid"))
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}

	next, err := client.Acquire(ctx, "jobs/orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	successor := &http.Client{Transport: &httpfence.Transport{Source: next}}
	fmt.Println("its successor:", put(successor, front.URL+"/orders/42", "refunded"))

	err = put(worker, front.URL+"/orders/42", "paid")
	fmt.Println("the worker is stale:", errors.Is(err, croft.ErrStale))
	if err := next.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the service sees PUT /orders/42
	// the worker: <nil>
	// the service sees PUT /orders/42
	// its successor: <nil>
	// the worker is stale: true
}

// A service that can check does so where it writes: in one transaction with its
// data. Require only reads the stamp.
func ExampleRequire() {
	var table guardtest.Memory // stands for a table with a guard: see the guards of backend/postgres
	handler := httpfence.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamp, _ := httpfence.StampFrom(r.Context())
		if _, err := table.Write(r.Context(), stamp, r.Body); err != nil {
			httpfence.Refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	front := httptest.NewServer(handler)
	defer front.Close()

	older := croft.Stamp{Key: "jobs/orders", Token: 41, Grant: "0123456789abcdef0123456789abcdef"}
	newer := croft.Stamp{Key: "jobs/orders", Token: 42, Grant: "fedcba9876543210fedcba9876543210"}
	for _, stamp := range []croft.Stamp{older, newer, older} {
		err := put(&http.Client{Transport: &httpfence.Transport{Source: httpfence.Fixed(stamp)}}, front.URL, "content")
		fmt.Println("token", stamp.Token, "gets", outcome(err))
	}
	// Output:
	// token 41 gets <nil>
	// token 42 gets <nil>
	// token 41 gets 409 stale
}

// A service in one process has no transaction that could hold the mark. So a
// gate stands before its handler.
func ExampleGate_Middleware() {
	rule, err := httpfence.ParseRule("/{path...} as billing for jobs/billing")
	if err != nil {
		log.Fatal(err)
	}
	var mark guardtest.Memory
	gate, err := httpfence.NewGate(httpfence.Options{
		Rules: []httpfence.Rule{rule},
		Marks: func(context.Context, string) (croft.Guard, error) { return &mark, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gate.Close(context.Background())
	front := httptest.NewServer(gate.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fmt.Println("written") })))
	defer front.Close()

	stamp := croft.Stamp{Key: "jobs/billing", Token: 7, Grant: "0123456789abcdef0123456789abcdef"}
	client := &http.Client{Transport: &httpfence.Transport{Source: httpfence.Fixed(stamp)}}
	fmt.Println(outcome(put(client, front.URL+"/invoices", "one")))
	fmt.Println(outcome(put(http.DefaultClient, front.URL+"/invoices", "two")))
	// Output:
	// written
	// <nil>
	// 428 invalid
}
