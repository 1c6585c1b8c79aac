// Package history records what clients of real stores and guards saw, and judges it.
//
// Every process writes a file of its own, one line of JSON for the beginning and one for the end of each operation, as soon as it happens: what a killed
// process has begun is known, and only its outcome is not. Times are those of the clock that runs since the machine was booted, which all processes of one
// machine share, so that "ended before the other began" means what it says.
//
// [Check] then holds the histories of all processes together against the laws. An outcome that nobody knows is taken for both: it happened, or it did not.
// A [Timeline] shows what broke a law, on one page that needs nothing else.
package history
