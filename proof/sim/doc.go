// Package sim tries to break Croft's laws. One seed makes one run of clients,
// stores, guarded resources and operators. Messages are lost, late and doubled,
// processes stop, crash, close and sleep, stores forget, and clocks lie.
//
// The simulator runs the code that ships wherever that code is pure: the laws
// (packages tenure and fence), the engine that decides for a client
// (internal/engine), store/cas over a simulated register, and the clock of
// object stores (internal/objects). It models the rest: the network, the
// servers, the hosts with their clocks, and the runtime that drives an engine.
//
// There is one queue of events, one time and one thread; a call of store/cas is
// a coroutine. A run is a function of its [Case]: one seed, one timeline, to
// the byte. A judge sees every effect at the moment it happens. It knows the
// truth that no client knows, and names the law that was broken. The [Profile]
// decides which laws can hold.
//
// A [Mutant] is a broken variant that a law must find. One of the engine is a
// patch of its code: the simulator is built with it.
package sim
