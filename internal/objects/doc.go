// Package objects has the common parts of lease stores on object storage: the
// names and the content of objects, the time on the service's clock, and a
// client's memory of its own writes. It sends no requests.
//
// A store on object storage is a register of store/cas with one object per key.
// It relies only on conditional writes: create an object if there is none, and
// replace an object if it has not changed since it was read. Services differ in
// conditional deletes, so no store relies on those; see [Body.Dropped].
//
// The package starts no goroutines. [Clock], [Memory] and [Bodies] have a mutex
// each, which guards their fields.
package objects
