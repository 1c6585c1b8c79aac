// Package hostile attacks Croft as a neighbour would who shares its store, its
// folder or its network. It has only tests. docs/threat-model.md lists them.
package hostile
