// Package peers lets MCP clients and servers that others wrote talk through
// croft mcp, and compares what they hear with what they hear without it. They
// are the official SDKs for Go and TypeScript, the servers for files and for
// everything, and the conformance suite.
//
// Every test run has the SDK for Go. With -all, as make proof sets it, the
// tests also use the packages of npm. Those need Node 22.
package peers
