package server_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/backend/remote"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/server/access"
)

// A program can serve its own store. Clients use the server as a store.
func Example() {
	srv := server.New(mem.New(nil), nil)
	front := httptest.NewServer(srv) // http.Server in a program that stays
	defer front.Close()
	defer srv.Drain()

	st, err := remote.Open(front.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	client := croft.New(st, &croft.Options{Owner: "ann"})
	defer client.Close()
	err = client.Do(context.Background(), "reports/daily", nil, func(_ context.Context, lease *croft.Lease) error {
		fmt.Println(lease.Key(), "is held by", lease.Record().Owner)
		return nil
	})
	fmt.Println(err)
	// Output:
	// reports/daily is held by ann
	// <nil>
}

// A policy says who may what. It is given to the server as its Access.
func ExampleAccess() {
	policy, err := access.Parse([]byte(`
certificate builder dns:builder.example
builder may acquire, work on build/
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := server.New(mem.New(nil), &server.Options{Access: policy})
	defer srv.Drain()

	fmt.Println(policy.Explain("builder", server.Acquire, "build/nightly"))
	fmt.Println(policy.May(server.Identity{Name: "builder"}, server.Operate, "build/nightly"))
	// Output:
	// {true 3 builder may acquire, work on build/ true}
	// false
}
