// Package house tests that the repository keeps its architecture. It has only
// tests. plan_test.go says which room may import which. The other laws are
// beside it: package comments, file sizes and names, promises of the README,
// supply of code.
//
// Every law is a function from a tree to the breaches of it. The tests
// try each law on small trees that break it on purpose, so that a law which
// notices nothing is noticed. Then they apply it to the repository itself.
package house
