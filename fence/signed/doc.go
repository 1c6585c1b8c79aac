// Package signed signs stamps, and lets guards admit only stamps that were
// issued.
//
// Anybody who can reach a guarded resource can make up a stamp. With a high
// token, such a stamp shuts the rightful owner out. A guard with [Keys] refuses
// every stamp without a signature by one of them. The server that grants leases
// has the private key, a [Key], and nobody else needs it.
//
// # The signed text
//
// An Ed25519 signature is made of the text "croft stamp 1", a zero byte, and
// the stamp's token, grant and key in the form of its text, with colons between
// them. The holder numbers its writes itself, so Seq is not signed. There is no
// other algorithm, and so no name of one in a stamp that somebody could change.
//
// # The meaning of a signature
//
// A signature proves that the key's owner has issued this grant of this lease
// key. It does not prove that the grant is still the newest: the guard's mark
// decides that, as without signatures. It does not prove who sends the stamp
// either: anybody who reads a signed stamp can present it, until the guard
// admits a newer owner. A signature has no end. Use one signing key for one
// store. With two stores, each could issue stamps for the leases of the other.
//
// # Files
//
// Keys are in PEM form. "openssl genpkey -algorithm ed25519" makes a private
// key, and "openssl pkey -pubout" prints its public half. A file may hold
// several keys. [ParseKeys] reads public keys, and takes the public half of
// private ones. [ParseKey] reads the private key that signs.
package signed
