// Package hostile attacks Croft like a neighbour that shares its store, its
// folder or its network. It has only tests. docs/threat-model.md lists them.
package hostile
