// Package examples is the folder of programs that tell a story. Each has a
// folder of its own.
package examples
