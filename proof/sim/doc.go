// Package sim tries to break Croft's laws. One seed makes one run of clients,
// stores, guarded resources and operators. Messages are lost, late and doubled.
// Processes stop, crash, close and sleep. Stores forget, and clocks run wrong.
//
// The simulator runs the code that ships, where that code is pure: the laws
// (packages tenure and fence), the engine that decides for a client
// (internal/engine), store/cas over a simulated register, and the clock of
// object stores (internal/objects). It models the rest: the network, the
// servers, the hosts with their clocks, and the runtime that drives an engine.
//
// # One thread
//
// A world has one queue of events (agenda) and one true time. Its loop takes
// the next event, sets the time and runs it, until a law breaks or the run is
// over. Nothing runs in parallel, so there are no locks. store/cas is written
// with blocking calls. Each such call is a coroutine (routine): it yields at
// every operation of its register, and the loop resumes it when the answer
// arrives. [Soaking] runs many worlds at once, on several goroutines. The
// worlds share nothing.
//
// A run is a function of its [Case]: one seed gives one timeline, to the byte.
// Each purpose has a random stream of its own. A fault draws its numbers even
// if it is left out, so that leaving it out does not change the others.
//
// # Judge
//
// The judge sees every effect at the moment it happens. It knows the truth that
// no client knows, and names the law that was broken. The [Profile] decides
// which laws can hold.
//
// A [Mutant] is a broken variant. A law, or a test of the engine, must find it.
// Mutants of the engine are patches of its code: the simulator is built with
// them.
package sim
