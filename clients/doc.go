// Package clients tests the clients in other languages, which are in the
// folders below it. conformance.md lists what each must show. The tests run
// against a real croft, as it is in this repository.
package clients
