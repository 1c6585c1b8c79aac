// Package page shows a Croft server to people, in a browser: the keys and their
// owners, refused writes, work items, and the health of the store. It is plain
// HTML with a little JavaScript, and works without that.
//
// # Who sees and does what
//
// The page is a client of the server's API in the same process. A visitor signs
// in with the token that the API takes. The token goes into a sealed cookie,
// which only this process can open: the page keeps no sessions. Every request
// asks [server.Access] again, so the page shows what the visitor may read, and
// offers what the visitor may do. Acts by hand on keys are calls of the API, so
// they are checked, carried out and audited like those.
//
// # What comes from others
//
// Names, notes and payloads in records are data of strangers. Templates escape
// them, no link is made of them, and characters that cannot be printed are
// shown as escapes. The browser gets no script but page.js. All listings are
// bounded.
//
// # Goroutines
//
// net/http runs one goroutine per request. A few requests read the store at a
// time, at most half of them for one visitor; others wait for them. The page
// starts no goroutine. It keeps its key, the names of visitors that read, and
// for a moment the last examination of the store. A mutex guards each.
package page
