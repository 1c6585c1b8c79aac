// Package access reads policies for a Croft server: a file that says which
// tokens and client certificates belong to whom, and who may do what.
//
//	# ann's token has this SHA-256. The token itself is in no file here.
//	token ann sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c1…
//	certificate builder dns:builder.example
//
//	ann     may acquire, work on reports/
//	builder may acquire, work, operate on build/nightly
//	builder may add on reports/
//	*       may read on *
//
// A line is empty, a comment, or one of these:
//
//   - "token NAME sha256:HEX" gives the sender of a token a name.
//   - "certificate NAME KIND:VALUE" gives the owner of a certificate a name. It
//     must have this alternative name. KIND is dns, email, uri or ip.
//   - "oidc NAME ISSUER AUDIENCE CLAIM VALUE" gives the bearer of a token a
//     name. An OpenID Connect issuer must have signed it for this audience, and
//     its claim must be this value, or a list with it. A [Verifier] verifies
//     the token.
//   - "SUBJECT may VERBS on KEYS" is a rule. SUBJECT is a name, or "*" for
//     every name. VERBS are some of read, acquire, work, add and operate.
//     KEYS is a key, a prefix that ends with a slash, or "*".
//
// The keys of the items in a queue begin with the queue's name and a slash. So
// a rule on the prefix reports/ is also about the queue reports, and about all
// queues whose names begin with reports/.
//
// All is forbidden that no rule allows. Each verb includes read. No rule takes
// anything away.
//
// A [Policy] never changes, so it needs no lock.
package access
