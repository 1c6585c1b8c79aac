// Package examples is the folder of programs that tell a story. Each has a
// folder of its own. The folders python and node have recipes: a lease in the
// shape of a framework. The tests in clients run them.
package examples
