// Package sim tries to break Croft's laws: whole runs of clients, stores, guarded resources and operators from one seed, with messages that are
// lost, late and doubled, processes that stop, crash and sleep, stores that forget and clocks that lie.
//
// What is simulated is what runs in production wherever that is pure: the laws (packages tenure and fence), the machines that keep and wait for leases
// (internal/keep), store/cas over a simulated register, the clock of object stores (internal/objects). What surrounds them is modelled: the network, the
// servers, the hosts with their clocks, and the thin runtime of package croft that drives the machines.
//
// There is one queue of events, one time and one thread; a call of store/cas is a coroutine. Every run is a function of its [Case]: one seed, one timeline,
// to the byte. A [judge] sees every effect at the moment it happens, knows the truth that no client
// knows, and names the law that was broken. What is expected of a run depends on its [Profile]: the faults decide which laws can hold.
package sim
