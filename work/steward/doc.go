// Package steward keeps a ledger in order. It has two housekeepers, each under a lease of its own, so that one of all replicas that run it works at a time:
//
// The reconciler ([RunReconciler], or one pass with [Reconcile]) requeues items whose owner is no longer heard of, moves those whose attempts are used up to the dead, brings back effects whose dispatcher has died, flags items that are alive and get
// nowhere, and prunes what is over. Everything it changes is a compare and swap on the token that it has read.
//
// The dispatcher ([RunDispatcher]) delivers effects to where they go: a Go function, a webhook, a command. Its stamp is checked by the ledger with every effect it takes or settles, so one that was presumed dead and replaced settles nothing.
package steward
