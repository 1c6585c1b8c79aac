// Package mcp fences the tools of an MCP server: it refuses the calls of agents
// that have been replaced.
//
// [Serve] stands between an MCP client and an MCP server that speaks over its
// standard streams, and a [Proxy] before a server that speaks streamable HTTP.
// They pass on everything that the server offers, in the revisions with
// initialize and sessions and in those without. Calls of tools
// are writes unless a rule says otherwise. A write is let in as package
// httpfence lets requests in: one at a time for each resource, under a lease
// that makes this the only gate, after the mark has been raised durably.
//
// The stamp of the writes comes from the process that started this one, or over
// HTTP from a header. No message can name another: members called croft in the
// arguments and in _meta are removed.
//
// # Messages
//
// No byte of one side reaches the other. Each message is parsed strictly and
// written anew, so the server reads what the rules have read. A message that
// two parsers could read differently is refused, and nothing of it is sent.
//
// # How a session over standard streams works
//
// Serve has these goroutines, beside those of the gate:
//
//   - One reads the messages of the client, and one handles them. It passes on
//     all that is no write, and waits for an upstream that does not read.
//   - One reads the messages of the upstream. It finds the call that an answer
//     belongs to, and never waits for the client.
//   - One writes to the client what the others hand it.
//   - One for each write, from its arrival until it has been answered.
//   - One says again and again how long the upstream may run.
//
// The session's mutex guards the table of unanswered requests and the set of
// writes that are inside. No message is sent under it.
//
// # How a proxy over HTTP works
//
// Each request of a client has the goroutine of its server, and no other. A
// write reads its answer to the end there, whether or not the client does. The
// proxy's mutex guards two tables of the writes of sessions: those that a
// message can cancel, and those whose stream a client may want to resume. The
// proxy knows nothing else of sessions, so another one can go on with them.
//
// # Doubt
//
// A write that was sent and has no answer is in doubt: the upstream died or
// took too long, the client has cancelled the write, or the gate has lost its
// lease. Then the session kills the upstream with all its descendants, closes
// the resource for the settle time, and ends. A warden kills the upstream if
// this process is stopped for so long that it loses its lease while a write is
// inside.
//
// A Proxy cannot kill its upstream. It cuts the connection, closes the resource
// for the settle time, and goes on.
package mcp
