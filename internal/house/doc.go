// Package house holds the architecture of this repository to its plan. It is all tests: which room may open into which
// stands in plan_test.go, and the other laws (package comments, file sizes and names, what the README promises) beside it.
//
// Every law is a function from a tree to the places that break it. It is tried first on small trees that break it on
// purpose, so that a law which notices nothing is noticed, and then on the repository itself.
package house
