// Package objects is what lease stores on object storage have in common, whatever the service: how objects are named, what is in them, what time it is by the
// service's clock, and what a client remembers of its own writes. It sends nothing.
//
// A store on object storage is a register of store/cas with one object per key. The only thing it rests on is the conditional write: create if there is nothing,
// replace if it is still what was read. Services do not agree on conditional deletes, so nothing rests on those; see [Body.Dropped].
package objects
